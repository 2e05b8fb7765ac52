"""The tail of NLL deltas against the A/A launch: cases that exceed, and the share of tokens.

The mean can sit at zero while a few tokens move by nats; the share of such tokens is gated
apart. Where none (or few) exceed, a resample cannot see what the cases did not show: the share
of cases is then bounded by Clopper-Pearson, at one token or the mean excess seen per case.
A bound where no token moved thus assumes that a case that moves has one moved token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from evalharness.stats import clopper_pearson, ratio_equivalence, sign_test


@dataclass(frozen=True, slots=True)
class TailTest:
    """Excess of the exceeding share over A/A (fractions of tokens), its one-sided 1 - alpha
    upper limit, p of "excess >= margin", and the sign test of harm over cases. `floor` is the
    smallest upper limit that this many cases and tokens can reach, with none exceeding (one
    exceeding token assumed in a case that exceeds); `tokens_per_case` is their mean."""

    excess: float
    upper: float
    p: float
    p_harm: float
    floor: float
    tokens_per_case: float


def tail_test(
    candidate: NDArray[np.float64],
    aa: NDArray[np.float64],
    sizes: NDArray[np.float64],
    *,
    margin: float,
    alpha: float,
    n_resamples: int,
    seed: int,
) -> TailTest:
    """Test that the candidate's share of exceeding tokens is less than A/A's plus `margin`.

    `candidate`, `aa`: exceeding tokens per case; `sizes`: tokens per case, all over the same
    cases. ValueError on fewer than two cases.
    """
    surplus = candidate - aa
    test = ratio_equivalence(
        surplus, sizes, margin=margin, n_resamples=n_resamples, seed=seed, alpha=alpha
    )
    worse = int((surplus > 0).sum())
    per_case = max(1.0, float(surplus[surplus > 0].mean())) if worse else 1.0
    g = sizes.size
    as_share = per_case * g / float(sizes.sum())
    bound = clopper_pearson(worse, g, 1 - 2 * alpha).upper * as_share
    allowed = margin / as_share
    p_bound = float(bdtr(worse, g, allowed)) if allowed < 1 else 0.0
    return TailTest(
        excess=test.estimate,
        upper=max(test.interval.upper, bound),
        p=max(test.p_upper, p_bound),
        p_harm=sign_test(worse, int((surplus < 0).sum())).p_one_sided,
        floor=clopper_pearson(0, g, 1 - 2 * alpha).upper * g / float(sizes.sum()),
        tokens_per_case=float(sizes.sum()) / g,
    )


def cases_to_bound(margin: float, tokens_per_case: float, *, alpha: float) -> int:
    """Return the fewest cases, none exceeding, whose bound is the margin (a share of tokens).

    The first n with (1 - margin * tokens_per_case)^n <= alpha: the Clopper-Pearson bound of
    `tail_test`, inverted. Two at least, as for every tail.
    """
    allowed = margin * tokens_per_case
    if allowed >= 1:
        return 2
    n = max(2, math.ceil(math.log(alpha) / math.log1p(-allowed) - 1e-9))
    while float(bdtr(0, n, allowed)) > alpha:
        n += 1
    return n
