"""Equivalence of paired means by two one-sided t-tests."""

from __future__ import annotations

import math

from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from evalharness.stats._checks import as_vector, require_open_unit
from evalharness.stats._results import Interval, Tost


def tost_paired(x: ArrayLike, y: ArrayLike, low: float, upp: float, alpha: float = 0.05) -> Tost:
    """Test low < mean(x - y) < upp; p is the larger of the two one-sided p-values.

    `x`, `y`: paired vectors in the unit of `low` and `upp`; the interval has confidence
    1 - 2 alpha. Schuirmann 1987, J Pharmacokinet Biopharm 15:657. For 0/1 outcomes this is a
    Wald test: use noninferiority. ValueError on unequal lengths, fewer than two pairs, or
    low >= upp.
    """
    first, second = as_vector(x, "x"), as_vector(y, "y")
    require_open_unit(alpha=alpha)
    if first.size != second.size or first.size < 2:
        raise ValueError(f"expected two or more pairs, found {first.size} and {second.size}")
    if low >= upp:
        raise ValueError(f"expected low < upp, found {low} and {upp}")
    difference = first - second
    n, mean = difference.size, float(difference.mean())
    se = float(difference.std(ddof=1)) / math.sqrt(n)
    if se == 0:
        return Tost(0.0 if low < mean < upp else 1.0, Interval(mean, mean))
    p_low = float(stdtr(n - 1, -(mean - low) / se))
    p_upp = float(stdtr(n - 1, (mean - upp) / se))
    half = float(stdtrit(n - 1, 1 - alpha)) * se
    return Tost(max(p_low, p_upp), Interval(mean - half, mean + half))
