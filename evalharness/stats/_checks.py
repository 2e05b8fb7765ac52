"""Checks at the door: each message says what was expected and what was found."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def require_counts(**counts: float) -> None:
    """Raise ValueError unless every count is a whole number >= 0."""
    for name, value in counts.items():
        if not math.isfinite(value) or value < 0 or value != int(value):
            raise ValueError(f"{name}: expected a whole number of cases >= 0, found {value!r}")


def require_table(wins: float, losses: float, n: float) -> None:
    """Raise ValueError unless wins + losses <= n with n > 0 (fractions of cases allowed)."""
    finite = all(math.isfinite(value) for value in (wins, losses, n))
    if not finite or wins < 0 or losses < 0 or n <= 0:
        raise ValueError(
            f"expected wins >= 0, losses >= 0, n > 0; found wins={wins}, losses={losses}, n={n}"
        )
    if wins + losses > n * (1 + 1e-12):
        raise ValueError(f"wins + losses = {wins + losses} exceed the {n} cases")


def require_open_unit(**values: float) -> None:
    """Raise ValueError unless every value lies strictly between 0 and 1."""
    for name, value in values.items():
        if not 0.0 < value < 1.0:
            raise ValueError(
                f"{name}: expected a fraction strictly between 0 and 1, found {value!r}"
                + ("; write 5 points as 0.05" if value >= 1 else "")
            )


def as_vector(values: ArrayLike, name: str) -> FloatArray:
    """Return a finite float64 vector; ValueError names `name` otherwise."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or vector.size == 0:
        raise ValueError(f"{name}: expected a non-empty vector, found shape {vector.shape}")
    if not np.isfinite(vector).all():
        raise ValueError(f"{name}: expected finite values, found NaN or infinity")
    return vector


def as_matrix(values: ArrayLike, name: str) -> FloatArray:
    """Return a finite float64 matrix (cases x columns); ValueError names `name` otherwise."""
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"{name}: expected cases x columns, found shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name}: expected finite values, found NaN or infinity")
    return matrix


def as_binary(values: ArrayLike, name: str) -> FloatArray:
    """Return a matrix of 0 and 1 (cases x columns); ValueError names `name` otherwise."""
    matrix = as_matrix(values, name)
    if not np.isin(matrix, (0.0, 1.0)).all():
        raise ValueError(f"{name}: expected only 0 and 1")
    return matrix


def require_p_values(p_values: Sequence[float]) -> None:
    """Raise ValueError unless every value is a probability."""
    for index, value in enumerate(p_values):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"p_values[{index}]: expected a probability, found {value!r}")
