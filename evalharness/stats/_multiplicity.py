"""Several arms: Holm's adjustment, or a fixed sequence declared beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evalharness.stats._checks import require_p_values


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm-adjusted p-values in input order; an empty input gives an empty result.

    Holm 1979, Scandinavian Journal of Statistics 6:65. ValueError on a value outside [0, 1].
    """
    require_p_values(p_values)
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    factors = np.arange(p.size, 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return tuple(float(value) for value in adjusted)


def fixed_sequence(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return adjusted p-values of tests done in the given order, stopping at the first failure.

    Each is the maximum so far, so none passes after one that failed. Maurer, Hothorn &
    Lehmacher 1995. ValueError on a value outside [0, 1].
    """
    require_p_values(p_values)
    return tuple(float(v) for v in np.maximum.accumulate(np.asarray(p_values, dtype=np.float64)))
