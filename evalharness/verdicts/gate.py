"""The gate of one cell: counts of cases, or of several replays scaled by the design effect."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from evalharness.stats import (
    EXACT_LIMIT,
    design_effect,
    exact_unconditional_p,
    noninferiority,
    pooled_noninferiority,
    required_cases,
    score_limit,
    sign_test,
    smallest_admitted_margin,
)
from evalharness.verdicts.paired import net_signs


@dataclass(frozen=True, slots=True)
class Counts:
    """Wins and losses of n cases; with replays, whole effective numbers rounded against
    the candidate (wins and n down, losses up)."""

    wins: int
    losses: int
    n: int


@dataclass(frozen=True, slots=True)
class GateP:
    """p-values of non-inferiority at a margin; `p` = max(score, exact)."""

    p_score: float
    p_exact: float | None
    p: float


def effective_counts(differences: NDArray[np.int8]) -> Counts:
    """Return the counts that stand for cases x replays of -1, 0, 1."""
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    if differences.shape[1] == 1:
        return Counts(wins, losses, differences.shape[0])
    deff = design_effect(differences)
    n = math.floor(differences.size / deff + 1e-9)
    lost = min(math.ceil(losses / deff - 1e-9), n)
    return Counts(min(math.floor(wins / deff + 1e-9), n - lost), lost, n)


def gate_p(differences: NDArray[np.int8], *, margin: float, alpha: float) -> GateP:
    """Judge cases x replays of -1, 0, 1 at the margin (a fraction)."""
    counts = effective_counts(differences)
    if differences.shape[1] == 1:
        single = noninferiority(counts.wins, counts.losses, counts.n, margin, alpha)
        return GateP(single.p_score, single.p_exact, single.p)
    score = pooled_noninferiority(differences, margin, alpha).p
    if counts.n > EXACT_LIMIT:
        return GateP(score, None, score)
    exact = exact_unconditional_p(counts.wins, counts.losses, counts.n, margin)
    return GateP(score, exact, max(score, exact))


def harm_p(differences: NDArray[np.int8]) -> float:
    """One-sided exact sign test of harm on each case's net direction over its replays."""
    signs = net_signs(differences)
    return sign_test(int((signs < 0).sum()), int((signs > 0).sum())).p_one_sided


def limits(differences: NDArray[np.int8], z: float) -> tuple[float, float]:
    """Return the score limits of the difference at +-z; replays scaled by the design effect."""
    deff = design_effect(differences) if differences.shape[1] > 1 else 1.0
    wins, losses = float((differences > 0).sum()) / deff, float((differences < 0).sum()) / deff
    n = differences.size / deff
    return score_limit(wins, losses, n=n, z=z), score_limit(wins, losses, n=n, z=-z)


def smallest_margin_of(differences: NDArray[np.int8], alpha: float) -> float:
    """Return the smallest margin (a fraction) that these differences would have passed."""
    counts = effective_counts(differences)
    return smallest_admitted_margin(counts.wins, counts.losses, counts.n, alpha)


def cases_needed(counts: Counts, *, margin: float, alpha: float, as_observed: bool) -> int | None:
    """Return the cases for 80% power of this gate alone at the discordance seen.

    The arms are taken as equal, or with `as_observed` as different as they were seen; None
    where the difference seen reaches the margin, so that no number of cases would do. Where no
    case differed, equal arms are taken to differ in one case of those asked, and `as_observed`
    gives the cases that pass if none ever differs.
    """
    if as_observed and not counts.wins + counts.losses:
        return cases_if_none_differs(margin, alpha)
    share = max(counts.wins + counts.losses, 1) / counts.n
    difference = (counts.wins - counts.losses) / counts.n if as_observed else 0.0
    if difference <= -margin:
        return None
    return required_cases(margin, share, alpha, difference=difference, exact=True)


@lru_cache(maxsize=256)
def cases_if_none_differs(margin: float, alpha: float) -> int:
    """Return the fewest cases whose gate passes where not one of them differs."""
    z2 = float(ndtri(alpha)) ** 2
    # the score test's own bound, z^2 (1 - margin) / margin; the exact test may ask for more
    n = max(1, math.ceil(z2 * (1 - margin) / margin - 1e-9))
    while noninferiority(0, 0, n, margin, alpha).p > alpha:
        n += 1
    return n
