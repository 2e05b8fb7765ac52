"""Ratios over clusters (cases): sum of token values over number of tokens.

Estimand: the token-weighted mean. The standard error is linearised over clusters, as in
Liang & Zeger 1986 (Biometrika 73:13) and Cameron & Miller 2015; tokens are never independent.
Intervals: Efron & Tibshirani 1993, chapters 12 to 14.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, ndtr, ndtri

from evalharness.stats._checks import FloatArray, as_vector, require_open_unit
from evalharness.stats._discordant import sign_test
from evalharness.stats._proportions import clopper_pearson
from evalharness.stats._resample import bootstrap_sums
from evalharness.stats._results import BootstrapInterval, Equivalence, Interval, RatioEstimate

Method = Literal["studentized", "bca", "percentile"]


def _clusters(sums: ArrayLike, sizes: ArrayLike) -> tuple[FloatArray, FloatArray]:
    s, m = as_vector(sums, "sums"), as_vector(sizes, "sizes")
    if s.size != m.size or s.size < 2:
        raise ValueError(f"expected two or more clusters, found {s.size} sums, {m.size} sizes")
    if (m <= 0).any():
        raise ValueError("sizes: expected every cluster to have a size > 0; drop empty cases")
    return s, m


def cluster_ratio(sums: ArrayLike, sizes: ArrayLike) -> RatioEstimate:
    """Return sum(S)/sum(m) over G clusters and its standard error (t with G - 1 df).

    `sums`: value summed per cluster; `sizes`: its number of tokens. Equal to a least-squares
    mean with cluster-robust errors. ValueError on fewer than two clusters, unequal lengths,
    an empty cluster or NaN.
    """
    s, m = _clusters(sums, sizes)
    estimate = float(s.sum() / m.sum())
    residual = s - m * estimate
    g = s.size
    se = math.sqrt(g / (g - 1) * float(residual @ residual)) / float(m.sum())
    return RatioEstimate(estimate, se)


@dataclass(frozen=True, slots=True, eq=False)
class _Resampled:
    """A ratio with its resamples: shifts of the estimate and their studentized values."""

    ratio: RatioEstimate
    shifts: FloatArray
    t: FloatArray


def _resample(s: FloatArray, m: FloatArray, n_resamples: int, seed: int) -> _Resampled:
    ratio = cluster_ratio(s, m)
    # centred first: the squares below would otherwise cancel
    e = s - m * ratio.estimate
    e[np.abs(e) <= 1e-14 * (np.abs(s) + m * abs(ratio.estimate))] = 0.0
    sums = bootstrap_sums(np.column_stack([e, m, e * e, e * m, m * m]), n_resamples, seed)
    total_e, total_m, ee, em, mm = sums.T
    shifts = total_e / total_m
    g = s.size
    squares = np.maximum(ee - 2 * shifts * em + shifts**2 * mm, 0.0)
    se = np.sqrt(g / (g - 1) * squares) / total_m
    flat = se <= 1e-9 * ratio.se
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(flat, np.where(shifts == 0, 0.0, np.copysign(np.inf, shifts)), shifts / se)
    return _Resampled(ratio, shifts, t)


def _studentized_limits(sample: _Resampled, confidence: float) -> Interval:
    if sample.ratio.se == 0:
        return Interval(sample.ratio.estimate, sample.ratio.estimate)
    tail = (1 - confidence) / 2
    # no interpolation: a t-value may be infinite
    high = float(np.quantile(sample.t, 1 - tail, method="higher"))
    low = float(np.quantile(sample.t, tail, method="lower"))
    estimate, se = sample.ratio.estimate, sample.ratio.se
    return Interval(estimate - high * se, estimate - low * se)


def bca_interval(
    replicates: ArrayLike, estimate: float, jackknife: ArrayLike, confidence: float = 0.95
) -> Interval:
    """Return the bias-corrected accelerated interval of any statistic.

    `replicates`: its bootstrap values; `jackknife`: its leave-one-cluster-out values. Efron
    1987, JASA 82:171. Constant replicates give an empty interval: never gate on it.
    ValueError on NaN or a confidence outside (0, 1).
    """
    values, left_out = as_vector(replicates, "replicates"), as_vector(jackknife, "jackknife")
    require_open_unit(confidence=confidence)
    if float(np.ptp(values)) == 0:
        return Interval(float(values[0]), float(values[0]))
    below = (np.count_nonzero(values < estimate) + np.count_nonzero(values <= estimate)) / 2
    bias = float(ndtri(np.clip(below / values.size, 0.5 / values.size, 1 - 0.5 / values.size)))
    spread = left_out.mean() - left_out
    cube = float((spread**2).sum()) ** 1.5
    acceleration = float((spread**3).sum()) / (6 * cube) if cube > 0 else 0.0
    z = float(ndtri((1 + confidence) / 2))
    shares = [float(ndtr(bias + (bias + q) / (1 - acceleration * (bias + q)))) for q in (-z, z)]
    lower, upper = np.quantile(values, shares)
    return Interval(float(lower), float(upper))


def cluster_bootstrap(
    sums: ArrayLike,
    sizes: ArrayLike,
    n_resamples: int,
    seed: int,
    confidence: float = 0.95,
    method: Method = "studentized",
) -> BootstrapInterval:
    """Return a bootstrap interval of the ratio, resampling whole clusters.

    "studentized" is for gates (infinite where too few clusters vary to studentize), "bca"
    beside it, "percentile" for display only. `se` is linearised. Shapes, errors:
    cluster_ratio; ValueError also on an unknown method.
    """
    s, m = _clusters(sums, sizes)
    require_open_unit(confidence=confidence)
    sample = _resample(s, m, n_resamples, seed)
    estimate, se = sample.ratio.estimate, sample.ratio.se
    if method == "studentized":
        limits = _studentized_limits(sample, confidence)
    elif method == "bca":
        left_out = (s.sum() - s) / (m.sum() - m)
        limits = bca_interval(estimate + sample.shifts, estimate, left_out, confidence)
    elif method == "percentile":
        tail = (1 - confidence) / 2
        lower, upper = estimate + np.quantile(sample.shifts, [tail, 1 - tail])
        limits = Interval(float(lower), float(upper))
    else:
        raise ValueError(f"method: expected studentized, bca or percentile, found {method!r}")
    return BootstrapInterval(estimate, se, *limits)


def _tail_share(hits: int, n_resamples: int) -> float:
    return (1 + hits) / (n_resamples + 1)


def _sparse(s: FloatArray, m: FloatArray, margin: float, alpha: float) -> Equivalence:
    """Bound the mean by (share of cases that differ at all) x (largest difference seen)."""
    ratio = cluster_ratio(s, m)
    g, k = s.size, int(np.count_nonzero(s))
    largest = float(np.abs(s).max()) * g / float(m.sum())
    share = margin / largest if largest > 0 else math.inf
    # at exactly the margin nothing is shown, rounding of the ratio included
    p = 0.0 if share > 1 + 1e-12 else float(bdtr(k, g, min(share, 1.0)))
    half = clopper_pearson(k, g, 1 - 2 * alpha).upper * largest
    signs = sign_test(int((s > 0).sum()), int((s < 0).sum()))
    return Equivalence(
        ratio.estimate, ratio.se, Interval(-half, half), p, p, p, signs.p_two_sided, "sparse"
    )


def ratio_equivalence(
    sums: ArrayLike,
    sizes: ArrayLike,
    *,
    margin: float,
    n_resamples: int,
    seed: int,
    alpha: float = 0.025,
    resolution: float = 0.0,
) -> Equivalence:
    """Test |sum(S)/sum(m)| < margin by two one-sided studentized cluster-bootstrap tests.

    `margin` is in the unit of S per m. Where so few clusters differ from zero that a resample
    often has no spread, the studentized value does not exist; the method is then "sparse": a
    Clopper-Pearson bound of the share of clusters that differ, times the largest difference
    seen. A cluster whose own ratio is within `resolution` counts as not different and
    `resolution` is taken off the margin, which keeps the test valid (the ratio moves by no
    more): rounding dust beside one real difference has no studentized value either.
    Shapes, errors: cluster_ratio; ValueError also unless 0 <= resolution < margin.
    """
    s, m = _clusters(sums, sizes)
    require_open_unit(alpha=alpha)
    if not margin > 0:
        raise ValueError(f"margin: expected > 0 in the unit of the ratio, found {margin}")
    if not 0 <= resolution < margin:
        raise ValueError(f"resolution: expected 0 <= resolution < {margin}, found {resolution}")
    found = _equivalence(
        np.where(np.abs(s) <= resolution * m, 0.0, s),
        m,
        margin=margin - resolution,
        n_resamples=n_resamples,
        seed=seed,
        alpha=alpha,
    )
    ratio = cluster_ratio(s, m)
    low, high = found.interval
    interval = Interval(low - resolution, high + resolution)
    return replace(found, estimate=ratio.estimate, se=ratio.se, interval=interval)


def _equivalence(
    s: FloatArray, m: FloatArray, *, margin: float, n_resamples: int, seed: int, alpha: float
) -> Equivalence:
    sample = _resample(s, m, n_resamples, seed)
    limits = _studentized_limits(sample, 1 - 2 * alpha)
    if sample.ratio.se == 0 or not all(math.isfinite(limit) for limit in limits):
        return _sparse(s, m, margin, alpha)
    estimate, se, t = sample.ratio.estimate, sample.ratio.se, sample.t
    p_upper = _tail_share(int((t <= (estimate - margin) / se).sum()), t.size)
    p_lower = _tail_share(int((t >= (estimate + margin) / se).sum()), t.size)
    below = _tail_share(int((t <= estimate / se).sum()), t.size)
    above = _tail_share(int((t >= estimate / se).sum()), t.size)
    p = max(p_lower, p_upper)
    shift = min(1.0, 2 * min(below, above))
    return Equivalence(estimate, se, limits, p_lower, p_upper, p, shift, "studentized")
