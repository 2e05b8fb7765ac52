"""Main effects and interactions of a two-level factorial on paired outcomes.

One number per case and effect: a main effect is the mean over the other factors of "on minus
off"; a two-way interaction is yAB - yA - yB + y0. Generalised estimating equations with an
independence structure give the same estimates (Liang & Zeger 1986); their robust standard
error is this one times sqrt((n - 1)/n).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, gammaln

from evalharness.stats._checks import FloatArray, as_matrix, require_open_unit
from evalharness.stats._proportions import clopper_pearson
from evalharness.stats._resample import bootstrap_sums, generator
from evalharness.stats._results import FactorialEffect, FactorialEffects

_FLIPS = 9999

Levels = Sequence[Sequence[int | str]] | Sequence[Mapping[str, int | str]]


@dataclass(frozen=True, slots=True, eq=False)
class _Contrasts:
    """Per-case contrast values (cases x effects) and what each effect is."""

    values: FloatArray
    factors: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]


def _coded(levels: Levels) -> tuple[FloatArray, tuple[str, ...]]:
    """Rows of 0 and 1 as they are; of labels, 0 where the label is the first arm's."""
    rows = [tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in levels]
    names = tuple(levels[0]) if isinstance(levels[0], Mapping) else ()
    if len({len(row) for row in rows}) != 1:
        raise ValueError("levels: expected the same number of factors for every arm")
    if all(value in (0, 1) for row in rows for value in row):
        return np.array(rows, dtype=np.float64), names
    many = [len(set(column)) for column in zip(*rows, strict=True)]
    if max(many) > 2:
        raise ValueError(f"levels: expected two levels of every factor, found {many}")
    coded = [[value != base for value, base in zip(row, rows[0], strict=True)] for row in rows]
    return np.array(coded, dtype=np.float64), names


def _design(levels: Levels, arms: int) -> tuple[FloatArray, tuple[str, ...]]:
    if len(levels) != arms or not arms:
        raise ValueError(f"levels: expected one row for each of {arms} arms, found {len(levels)}")
    coded, names = _coded(levels)
    expected = 2 ** coded.shape[1]
    if arms != expected or len({tuple(row) for row in coded}) != expected:
        raise ValueError(
            f"levels: expected each of the {expected} combinations of "
            f"{coded.shape[1]} two-level factors once, found {arms} arms"
        )
    return coded, names


def _contrasts(y: FloatArray, coded: FloatArray, names: Sequence[str]) -> _Contrasts:
    count = coded.shape[1]
    letters = tuple(names) or tuple(chr(65 + i) for i in range(count))
    if len(letters) != count:
        raise ValueError(f"names: expected {count}, found {len(letters)}")
    subsets = [s for size in range(1, count + 1) for s in combinations(range(count), size)]
    signs = 2 * coded - 1
    columns = [signs[:, list(s)].prod(axis=1) / 2 ** (count - len(s)) for s in subsets]
    mark = "" if all(len(name) == 1 for name in letters) else ":"
    joined = tuple(mark.join(letters[i] for i in s) for s in subsets)
    return _Contrasts(y @ np.column_stack(columns), tuple(subsets), joined)


def _signed_sum(count: int, step: int) -> FloatArray:
    """Distribution of the sum of `count` terms +-step, over -count*step..count*step."""
    out = np.zeros(2 * count * step + 1)
    k = np.arange(count + 1)
    log_p = gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1) - count * math.log(2)
    out[2 * step * k] = np.exp(log_p)
    return out


def _flip_exact(steps: FloatArray) -> float:
    """Exact two-sided sign-flip p of whole-number values, by convolution."""
    law: FloatArray = np.ones(1)
    sizes, counts = np.unique(np.abs(steps[steps != 0]).astype(np.int64), return_counts=True)
    for size, count in zip(sizes, counts, strict=True):
        law = np.asarray(np.convolve(law, _signed_sum(int(count), int(size))), dtype=np.float64)
    support = np.arange(law.size) - law.size // 2
    return min(1.0, float(law[np.abs(support) >= abs(int(steps.sum()))].sum()))


def _flip_sampled(values: FloatArray, seed: int) -> float:
    rng = generator(seed)
    observed = abs(float(values.sum())) * (1 - 1e-12)
    hits = 0
    for _ in range(0, _FLIPS, 99):
        signs = rng.integers(0, 2, size=(99, values.size), dtype=np.int8) * 2.0 - 1.0
        hits += int((np.abs(signs @ values) >= observed).sum())
    return (1 + hits) / (_FLIPS + 1)


def _flip_p(values: FloatArray, scale: int, seed: int) -> float:
    steps = np.rint(values * scale)
    if np.allclose(steps, values * scale, atol=1e-9) and np.abs(steps).max(initial=0) <= 64:
        return _flip_exact(steps)
    return _flip_sampled(values, seed)


def _max_t(values: FloatArray, *, level: float, n_resamples: int, seed: int) -> float:
    """The `level` quantile of the largest |t| over effects, by bootstrap over cases."""
    n, k = values.shape
    centred = values - values.mean(axis=0)
    sums = bootstrap_sums(np.hstack([centred, centred**2]), n_resamples, seed)
    shift, square = sums[:, :k] / n, sums[:, k:]
    se = np.sqrt(np.maximum(square - n * shift**2, 0.0) / (n - 1) / n)
    flat = se <= 1e-9 * values.std(axis=0, ddof=1) / math.sqrt(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(flat, np.where(shift == 0, 0.0, np.inf), np.abs(shift) / se)
    return float(np.quantile(t.max(axis=1), level, method="higher"))


def _half_widths(
    values: FloatArray, floors: FloatArray, *, alpha: float, n_resamples: int, seed: int
) -> FloatArray:
    """Simultaneous half-widths. Effects with so few differing cases that resamples lose them
    get a Clopper-Pearson bound of their share times the largest value, each at alpha/m;
    `floors` are the largest values that 0/1 outcomes can give, seen or not."""
    n, m = values.shape
    nonzero = np.count_nonzero(np.abs(values) > 1e-12, axis=0)
    lost = np.array([float(bdtr(0, n, k / n)) for k in nonzero])
    spread = values.std(axis=0, ddof=1) / math.sqrt(n)
    dense = (lost < alpha / m / 4) & (spread > 0)
    out = np.empty(m)
    if dense.any():
        level = 1 - alpha * dense.sum() / m
        critical = _max_t(values[:, dense], level=level, n_resamples=n_resamples, seed=seed)
        # a handful of cases: whole resamples without spread, and no studentized value
        dense &= math.isfinite(critical)
        out[dense] = critical * spread[dense]
    for j in np.flatnonzero(~dense):
        largest = max(floors[j], float(np.abs(values[:, j]).max()))
        out[j] = clopper_pearson(int(nonzero[j]), n, 1 - alpha / m).upper * largest
    return out


def _effect(
    name: str, factors: tuple[int, ...], column: FloatArray, *, half: float, p: float
) -> FactorialEffect:
    mean, se = float(column.mean()), float(column.std(ddof=1)) / math.sqrt(column.size)
    return FactorialEffect(name, factors, mean, se, mean - half, mean + half, p)


def factorial_effects(
    outcomes: ArrayLike,
    levels: Levels,
    *,
    names: Sequence[str] | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> FactorialEffects:
    """Return every main effect and interaction with simultaneous intervals.

    `outcomes`: n cases x 2^f arms, 0/1 or real; `levels`: one row of f levels per arm, in the
    order of the columns: 0 and 1, or labels (the first arm's are "off"), or a mapping from
    factor to label. Effects are named A, B, AB, or by `names` or the factors; estimates have
    the unit of the outcomes. Intervals: studentized max-t over cases; `p`: two-sided sign-flip
    test, exact for 0/1 outcomes. ValueError on a partial factorial, other shapes, NaN, fewer
    than two cases.
    """
    y = as_matrix(outcomes, "outcomes")
    require_open_unit(confidence=confidence)
    if y.shape[0] < 2:
        raise ValueError(f"outcomes: expected two or more cases, found {y.shape[0]}")
    coded, factors = _design(levels, y.shape[1])
    contrasts = _contrasts(y, coded, names or factors)
    v, scale = contrasts.values, 2 ** (coded.shape[1] - 1)
    binary = bool(((y >= 0) & (y <= 1)).all())
    floors = np.array([float(binary) * 2 ** (len(s) - 1) for s in contrasts.factors])
    half = _half_widths(v, floors, alpha=1 - confidence, n_resamples=n_resamples, seed=seed)
    rows = zip(contrasts.names, contrasts.factors, v.T, half, strict=True)
    return FactorialEffects(
        tuple(
            _effect(name, factors, column, half=float(width), p=_flip_p(column, scale, seed))
            for name, factors, column, width in rows
        )
    )
