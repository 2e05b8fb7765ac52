"""What else differs between two arms: output length and truncation, paired by case."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from evalharness.stats import Interval, sign_test, tango_interval
from evalharness.verdicts.cell_types import MeanContrast, RateContrast
from evalharness.verdicts.inputs import UNOBSERVED, FloatCube, OutcomeCube, OutcomeTable
from evalharness.verdicts.paired import Pair, net_signs


def _paired_means(values: FloatCube, control: int, candidate: int) -> Sequence[NDArray[np.float64]]:
    """Per-case means over replays of the cases known on both sides."""
    first, second = values[control].mean(axis=0), values[candidate].mean(axis=0)
    known = np.isfinite(first) & np.isfinite(second)
    return first[known], second[known]


def length_contrast(
    table: OutcomeTable, *, control: str, candidate: str | None, alpha: float
) -> MeanContrast | None:
    """Return the paired difference of generated tokens with its (1 - 2 alpha) t interval.

    None where there is no candidate (no A/A launch), the table holds no lengths, or fewer
    than two cases have both.
    """
    if table.lengths is None or candidate is None:
        return None
    base, other = _paired_means(
        table.lengths, table.arms.index(control), table.arms.index(candidate)
    )
    n = base.size
    if n < 2:
        return None
    difference = other - base
    mean, se = float(difference.mean()), float(difference.std(ddof=1)) / math.sqrt(n)
    half = float(stdtrit(n - 1, 1 - alpha)) * se
    p = 2 * float(stdtr(n - 1, -abs(mean) / se)) if se > 0 else float(mean == 0)
    return MeanContrast(
        n=n,
        control_mean=float(base.mean()),
        candidate_mean=float(other.mean()),
        estimate=mean,
        interval=Interval(mean - half, mean + half),
        p=p,
    )


def _rates(marks: OutcomeCube, control: int, candidate: int) -> Pair | None:
    known = ((marks[control] != UNOBSERVED) & (marks[candidate] != UNOBSERVED)).all(axis=0)
    if not known.any():
        return None
    return Pair(marks[control][:, known], marks[candidate][:, known])


def truncation_contrast(
    table: OutcomeTable, *, control: str, candidate: str | None, alpha: float
) -> RateContrast | None:
    """Return the paired difference of truncated answers (1 - 2 alpha score interval).

    The interval is of the first replay, the two-sided sign test of each case's net direction.
    None where there is no candidate, or the table holds no truncation marks.
    """
    if table.truncated is None or candidate is None:
        return None
    pair = _rates(table.truncated, table.arms.index(control), table.arms.index(candidate))
    if pair is None:
        return None
    counts = Pair(pair.control[:1], pair.candidate[:1]).discordance()
    signs = net_signs(pair.differences("worst"))
    return RateContrast(
        table=counts,
        estimate=(counts.wins - counts.losses) / counts.n,
        interval=tango_interval(
            counts.both_right, counts.wins, counts.losses, counts.both_wrong, 1 - 2 * alpha
        ),
        p=sign_test(int((signs < 0).sum()), int((signs > 0).sum())).p_two_sided,
    )
