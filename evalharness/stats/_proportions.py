"""Intervals of one proportion."""

from __future__ import annotations

import math

from scipy.special import betaincinv, ndtri

from evalharness.stats._checks import require_counts, require_open_unit
from evalharness.stats._results import Interval


def _check(k: int, n: int, confidence: float) -> None:
    require_counts(k=k, n=n)
    require_open_unit(confidence=confidence)
    if n == 0 or k > n:
        raise ValueError(f"expected 0 <= k <= n with n > 0; found k={k}, n={n}")


def wilson_interval(k: int, n: int, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval of k/n (fractions). ValueError unless 0 <= k <= n, n > 0.

    Wilson 1927, JASA 22:209; figures in Newcombe 1998, Statistics in Medicine 17:857.
    """
    _check(k, n, confidence)
    z = -float(ndtri((1 - confidence) / 2))
    centre = (k + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(k * (n - k) / n + z * z / 4)
    # at the ends the limits are 0 and 1 exactly; rounding must not move them
    return Interval(
        0.0 if k == 0 else max(centre - half, 0.0), 1.0 if k == n else min(centre + half, 1.0)
    )


def clopper_pearson(k: int, n: int, confidence: float = 0.95) -> Interval:
    """Return the exact interval of k/n (fractions). ValueError unless 0 <= k <= n, n > 0.

    Clopper & Pearson 1934, Biometrika 26:404.
    """
    _check(k, n, confidence)
    tail = (1 - confidence) / 2
    lower = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, tail))
    upper = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1 - tail))
    return Interval(lower, upper)
