"""Several observations of the same cases: replays of a cell, or levels of concurrency.

More observations of a case are not more cases. Rao & Scott 1992 (Biometrics 48:577): divide
the counts by the design effect, then use the ordinary score test.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtrc, ndtr, ndtri

from evalharness.stats._checks import FloatArray, as_binary, as_matrix, require_open_unit
from evalharness.stats._results import ExcessDiscordance, Interval, PooledNoninferiority
from evalharness.stats._score import score_limit, score_z


def _differences(differences: ArrayLike) -> FloatArray:
    d = as_matrix(differences, "differences")
    if not np.isin(d, (-1.0, 0.0, 1.0)).all():
        raise ValueError("differences: expected only -1 (loss), 0 and 1 (win)")
    return d


def design_effect(differences: ArrayLike) -> float:
    """Return cluster variance over naive variance, clipped to [1, C].

    `differences`: cases x C observations of candidate minus control (-1, 0, 1). C where there
    is no discordance or a single case, so that nothing can be estimated. ValueError on other
    values.
    """
    d = _differences(differences)
    n, c = d.shape
    share, mean = float((d != 0).mean()), float(d.mean())
    naive = n * c * (share - mean * mean)
    if n < 2 or naive <= 0:
        return float(c)
    return float(np.clip(n * d.sum(axis=1).var(ddof=1) / naive, 1.0, c))


def pooled_noninferiority(
    differences: ArrayLike, margin: float, alpha: float = 0.025
) -> PooledNoninferiority:
    """Score non-inferiority over C observations of each case, scaled by the design effect.

    `differences`: as in design_effect; `margin` a fraction; `interval` has confidence
    1 - 2 alpha. Errors: design_effect; ValueError on margin or alpha outside (0, 1).
    """
    d = _differences(differences)
    require_open_unit(margin=margin, alpha=alpha)
    deff = design_effect(d)
    wins, losses = float((d > 0).sum()) / deff, float((d < 0).sum()) / deff
    n = d.size / deff
    z, z_alpha = float(score_z(wins, losses, n=n, delta=-margin)), -float(ndtri(alpha))
    interval = Interval(
        score_limit(wins, losses, n=n, z=z_alpha), score_limit(wins, losses, n=n, z=-z_alpha)
    )
    return PooledNoninferiority(
        deff, wins, losses, n, float(d.mean()), z, float(ndtr(-z)), interval
    )


def excess_discordance(control: ArrayLike, candidate: ArrayLike) -> ExcessDiscordance:
    """Estimate mean (p_candidate - p_control)^2 over cases, from two replays of each arm.

    `control`, `candidate`: cases x 2 of 0/1. The excess is D_cross - (D_cc + D_tt)/2,
    unbiased; it sees changes that equal totals hide. Exact test: where two of four answers
    are right, both are one arm's with probability 1/3 if the arms are exchangeable.
    ValueError unless both are n x 2.
    """
    c, t = as_binary(control, "control"), as_binary(candidate, "candidate")
    if c.shape != t.shape or c.shape[1] != 2:
        raise ValueError(f"expected two matrices n x 2, found {c.shape} and {t.shape}")
    cross = float(np.mean([(c[:, i] != t[:, j]).mean() for i in (0, 1) for j in (0, 1)]))
    within_c, within_t = float((c[:, 0] != c[:, 1]).mean()), float((t[:, 0] != t[:, 1]).mean())
    split = (c.sum(axis=1) + t.sum(axis=1)) == 2
    same = split & (np.abs(c.sum(axis=1) - t.sum(axis=1)) == 2)
    k, n = int(same.sum()), int(split.sum())
    p = float(bdtrc(k - 1, n, 1 / 3)) if k > 0 else 1.0
    return ExcessDiscordance(cross, within_c, within_t, cross - (within_c + within_t) / 2, n, k, p)
