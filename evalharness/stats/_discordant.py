"""Tests on discordant cases: the sign test, McNemar's, and Cochran's Q."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, bdtrc, chdtrc, gammaln

from evalharness.stats._checks import as_binary, require_counts
from evalharness.stats._results import CochranQ, McNemar, SignTest


def _upper_tail(k: int, n: int) -> float:
    """P(X >= k) for X ~ Binomial(n, 1/2)."""
    return 1.0 if k <= 0 else float(bdtrc(k - 1, n, 0.5))


def _lower_tail(k: int, n: int) -> float:
    """P(X <= k) for X ~ Binomial(n, 1/2)."""
    return float(bdtr(k, n, 0.5))


def _point(k: int, n: int) -> float:
    log_choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return float(np.exp(log_choose - n * np.log(2.0)))


def sign_test(losses: int, wins: int) -> SignTest:
    """Test whether losses outnumber wins by chance; no discordance gives p = 1.

    Evidence of harm only: a large p never shows the absence of harm. Exact binomial
    (McNemar 1947); mid-p as in Fagerland, Lydersen & Laake 2013, BMC Med Res Methodol 13:91.
    ValueError on negative or fractional counts.
    """
    require_counts(losses=losses, wins=wins)
    n = losses + wins
    if n == 0:
        return SignTest(1.0, 1.0, 1.0, 1.0)
    one = _upper_tail(losses, n)
    least = min(losses, wins)
    two = min(1.0, 2 * _lower_tail(least, n))
    mid_two = 1 - _point(least, n) / 2 if losses == wins else two - _point(least, n)
    return SignTest(one, two, one - _point(losses, n) / 2, mid_two)


def mcnemar(a: int, b: int, c: int, d: int) -> McNemar:
    """Return the four McNemar tests of a paired table, two-sided.

    `a` both right, `b` first only, `c` second only, `d` neither. McNemar 1947, Psychometrika
    12:153. ValueError on negative or fractional counts.
    """
    require_counts(a=a, b=b, c=c, d=d)
    if b + c == 0:
        return McNemar(0.0, 1.0, 0.0, 1.0, 1.0, 1.0)
    chi2 = (b - c) ** 2 / (b + c)
    chi2_cc = max(abs(b - c) - 1, 0) ** 2 / (b + c)
    signs = sign_test(c, b)
    return McNemar(
        chi2=chi2,
        p_chi2=float(chdtrc(1, chi2)),
        chi2_cc=chi2_cc,
        p_cc=float(chdtrc(1, chi2_cc)),
        p_exact=signs.p_two_sided,
        p_mid=signs.p_mid_two_sided,
    )


def cochran_q(outcomes: ArrayLike) -> CochranQ:
    """Test whether any of k matched arms differs; `outcomes` is n cases x k arms of 0 and 1.

    Cochran 1950, Biometrika 37:256. Says only "some arm differs"; p = 1 where all rows agree.
    ValueError on another shape or other values.
    """
    x = as_binary(outcomes, "outcomes")
    k = x.shape[1]
    if k < 2:
        raise ValueError(f"outcomes: expected at least 2 arms, found {k}")
    columns, rows, total = x.sum(axis=0), x.sum(axis=1), x.sum()
    spread = k * total - (rows**2).sum()
    if spread == 0:
        return CochranQ(0.0, k - 1, 1.0)
    q = float((k - 1) * (k * (columns**2).sum() - total**2) / spread)
    return CochranQ(q, k - 1, float(chdtrc(k - 1, q)))
