"""The score statistic of a paired difference, the interval it implies, and Newcombe's.

Tango 1998, Statistics in Medicine 17:891-908. The restricted-likelihood statistics of
Nam 1997 (Biometrics 53) and Liu et al. 2002 are the same number.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from evalharness.stats._checks import (
    FloatArray,
    require_counts,
    require_open_unit,
    require_table,
)
from evalharness.stats._proportions import wilson_interval
from evalharness.stats._results import Interval

_BISECTIONS = 44  # to 1e-13 of the interval [-1, 1]


def score_z(wins: ArrayLike, losses: ArrayLike, *, n: float, delta: ArrayLike) -> FloatArray:
    """Return z(delta) = (w - l - n delta)/sqrt(n(2q + delta(1 - delta))), elementwise.

    `q` is the restricted maximum-likelihood estimate of the loss cell at the difference
    `delta` (a fraction in [-1, 1]). Counts may be fractional (Rao-Scott). Where the variance
    vanishes the result is 0 for a zero numerator, else infinite with its sign.
    """
    w = np.asarray(wins, dtype=np.float64)
    lost = np.asarray(losses, dtype=np.float64)
    d = np.asarray(delta, dtype=np.float64)
    b = -w - lost + (2 * n - w + lost) * d
    c = -lost * d * (1 - d)
    root = np.sqrt(np.maximum(b * b - 8 * n * c, 0.0))
    q = (root - b) / (4 * n)
    variance = n * (2 * q + d * (1 - d))
    numerator = w - lost - n * d
    # rounding leaves +-1e-16 n where the exact variance is 0
    flat = variance <= 1e-13 * n
    safe = np.where(flat, 1.0, variance)
    steep = np.where(np.abs(numerator) <= 1e-9 * n, 0.0, np.copysign(np.inf, numerator))
    return np.where(flat, steep, numerator / np.sqrt(safe))


def score_limit(wins: float, losses: float, *, n: float, z: float) -> float:
    """Return the difference at which the score statistic equals `z` (> 0: the lower limit)."""
    require_table(wins, losses, n)
    if z < 0:
        return -score_limit(losses, wins, n=n, z=-z)
    low, high = -1.0, (wins - losses) / n
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if float(score_z(wins, losses, n=n, delta=middle)) >= z:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def tango_interval(a: int, b: int, c: int, d: int, confidence: float = 0.95) -> Interval:
    """Return Tango's score interval of the paired difference (b - c)/n, as fractions.

    `a` both right, `b` first only, `c` second only, `d` neither. ValueError on negative or
    fractional counts, an empty table, or a confidence outside (0, 1).
    """
    require_counts(a=a, b=b, c=c, d=d)
    require_open_unit(confidence=confidence)
    z = -float(ndtri((1 - confidence) / 2))
    n = a + b + c + d
    return Interval(score_limit(b, c, n=n, z=z), score_limit(b, c, n=n, z=-z))


def _phi(a: int, b: int, c: int, d: int) -> float:
    product = math.sqrt(float(a + b) * (c + d) * (a + c) * (b + d))
    if product == 0:
        return 0.0
    cross = float(a * d - b * c)
    if cross > 0:
        cross = max(cross - (a + b + c + d) / 2, 0.0)
    return cross / product


def newcombe_interval(a: int, b: int, c: int, d: int, confidence: float = 0.95) -> Interval:
    """Return Newcombe's square-and-add interval (method 10) of (b - c)/n, as fractions.

    For display only: its type-I error at a margin exceeds the nominal level. Newcombe 1998,
    Statistics in Medicine 17:2635, with the continuity-corrected phi. Errors: tango_interval.
    """
    require_counts(a=a, b=b, c=c, d=d)
    n = a + b + c + d
    low1, high1 = wilson_interval(a + b, n, confidence)
    low2, high2 = wilson_interval(a + c, n, confidence)
    p1, p2, phi = (a + b) / n, (a + c) / n, _phi(a, b, c, d)
    down1, up1, down2, up2 = p1 - low1, high1 - p1, p2 - low2, high2 - p2
    below = math.sqrt(max(down1**2 - 2 * phi * down1 * up2 + up2**2, 0.0))
    above = math.sqrt(max(up1**2 - 2 * phi * up1 * down2 + down2**2, 0.0))
    return Interval(max(p1 - p2 - below, -1.0), min(p1 - p2 + above, 1.0))
