"""Verdicts that stay valid while cases are added, in an order drawn beforehand.

Betting e-process: Waudby-Smith & Ramdas 2024 (JRSS-B 86:1); validity at any stop by Ville's
inequality. Bernoulli confidence sequence by a beta mixture: Howard, Ramdas, McAuliffe &
Sekhon 2021 (Annals of Statistics 49:1055).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import betaln, logsumexp, xlog1py, xlogy

from evalharness.stats._checks import as_vector, require_counts, require_open_unit
from evalharness.stats._results import EProcess, Interval

_BETS = 64


def noninferiority_e_process(
    differences: ArrayLike, margin: float, alpha: float = 0.025
) -> EProcess:
    """Accumulate evidence, case by case, that the candidate loses less than `margin`.

    `differences`: per new case, candidate minus control (-1, 0, 1), in pre-drawn order; never
    a rerun of an old case. Evidence is the average over 64 bets of prod(1 + bet (D + margin)),
    bets in (0, 0.9/(1 - margin)). Admit once it reaches 1/alpha. ValueError on values beyond
    [-1, 1] or a margin or alpha outside (0, 1).
    """
    d = as_vector(differences, "differences")
    require_open_unit(margin=margin, alpha=alpha)
    if (np.abs(d) > 1).any():
        raise ValueError("differences: expected values in [-1, 1]")
    bets = 0.9 / (1 - margin) * (np.arange(_BETS) + 0.5) / _BETS
    paths = np.cumsum(np.log1p(np.multiply.outer(d + margin, bets)), axis=0)
    values = np.exp(np.minimum(logsumexp(paths, axis=1) - math.log(_BETS), 700.0))
    reached = np.flatnonzero(values >= 1 / alpha)
    return EProcess(
        e_values=tuple(float(v) for v in values),
        threshold=1 / alpha,
        rejected_at=int(reached[0]) + 1 if reached.size else None,
    )


def _log_evidence(k: int, n: int, *, rate: float, t_opt: float, alpha: float) -> float:
    """Log evidence against `rate`: a beta mixture centred on it, tightest near t_opt trials."""
    variance = rate * (1 - rate)
    # the mixture's spread: the closed approximation of its best value (Howard et al. 2021)
    reach = 2 * math.log(1 / alpha)
    best = t_opt * variance / (reach + math.log(1 + reach))
    spread = max(best - variance, 1e-3 * variance)
    a, b = spread / (1 - rate), spread / rate
    mixed = float(betaln(a + k, b + n - k) - betaln(a, b))
    return mixed - float(xlogy(k, rate)) - float(xlog1py(n - k, -rate))


def bernoulli_confidence_sequence(
    k: int, n: int, alpha: float = 0.05, t_opt: float = 100.0
) -> Interval:
    """Return an interval of a rate, k of n so far, that holds at every n at once.

    `t_opt`: number of trials at which it is tightest. ValueError unless 0 <= k <= n, n > 0,
    t_opt > 0 and alpha in (0, 1).
    """
    require_counts(k=k, n=n)
    require_open_unit(alpha=alpha)
    if n == 0 or k > n or not t_opt > 0:
        raise ValueError(f"expected 0 <= k <= n, n > 0, t_opt > 0; found {k}, {n}, {t_opt}")

    def evidence(rate: float) -> float:
        return _log_evidence(k, n, rate=rate, t_opt=t_opt, alpha=alpha) + math.log(alpha)

    edge = 1e-12
    middle = min(max(k / n, edge), 1 - edge)
    lower = 0.0 if evidence(edge) <= 0 else float(brentq(evidence, edge, middle))
    upper = 1.0 if evidence(1 - edge) <= 0 else float(brentq(evidence, middle, 1 - edge))
    return Interval(lower, upper)
