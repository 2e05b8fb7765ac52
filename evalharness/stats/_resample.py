"""Resampling of cases: counts, shared by every column that is looked at together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalharness.stats._checks import FloatArray, as_matrix

_DRAWS_AT_ONCE = 1 << 20
_FLOAT32_EXACT = 1 << 24
# a report draws the same resamples of a small suite dozens of times
_KEPT_DRAWS = 1 << 21


def generator(seed: int) -> np.random.Generator:
    """Return the one generator of this package for any whole number, negative ones too."""
    return np.random.Generator(np.random.PCG64(seed % (1 << 64)))


def resample_counts(n: int, n_resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield blocks (resamples x n) of how often each of n cases was drawn; rows sum to n.

    The whole sequence depends only on the arguments. ValueError on n or n_resamples < 1.
    """
    if n < 1 or n_resamples < 1:
        raise ValueError(f"expected n >= 1 and n_resamples >= 1, found {n} and {n_resamples}")
    rng = generator(seed)
    block = max(1, _DRAWS_AT_ONCE // n)
    for start in range(0, n_resamples, block):
        rows = min(block, n_resamples - start)
        drawn = rng.integers(0, n, size=(rows, n), dtype=np.int32)
        # one bincount over row-offset indices is several times faster than rng.multinomial
        drawn += np.arange(rows, dtype=np.int32)[:, None] * np.int32(n)
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)


@lru_cache(maxsize=4)
def _kept_counts(n: int, n_resamples: int, seed: int) -> tuple[NDArray[np.float64], ...]:
    return tuple(counts.astype(np.float64) for counts in resample_counts(n, n_resamples, seed))


def _exact_in_float32(columns: FloatArray) -> bool:
    whole = bool((columns == np.rint(columns)).all())
    return whole and float(np.abs(columns).max()) * columns.shape[0] < _FLOAT32_EXACT


def bootstrap_sums(columns: ArrayLike, n_resamples: int, seed: int) -> FloatArray:
    """Return resampled column sums: n_resamples x columns, of `columns` (cases x columns).

    All columns share each resample, so their sums stay jointly distributed. Whole-number
    columns are summed exactly. ValueError on another shape or NaN.
    """
    matrix = as_matrix(columns, "columns")
    n = matrix.shape[0]
    if n * n_resamples <= _KEPT_DRAWS:
        return np.concatenate([counts @ matrix for counts in _kept_counts(n, n_resamples, seed)])
    exact = _exact_in_float32(matrix)
    light = matrix.astype(np.float32)
    sums = np.empty((n_resamples, matrix.shape[1]), dtype=np.float64)
    row = 0
    for counts in resample_counts(n, n_resamples, seed):
        rows = slice(row, row + counts.shape[0])
        if exact:
            sums[rows] = counts.astype(np.float32) @ light
        else:
            sums[rows] = counts.astype(np.float64) @ matrix
        row = rows.stop
    return sums
