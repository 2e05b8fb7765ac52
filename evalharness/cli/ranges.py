"""Numbers on the command line: a value that never could work is refused before anything starts."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def whole(least: int) -> Callable[[str], int]:
    """Return a reader of whole numbers of `least` or more; ArgumentTypeError for anything else."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"expected a whole number of {least} or more, found {text!r}"
            )
        return value

    return read


def number(
    *, least: float = 0.0, most: float = math.inf, without_least: bool = False
) -> Callable[[str], float]:
    """Return a reader of finite numbers from `least` to `most`, or only above `least`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        inside = least < value if without_least else least <= value
        if not (math.isfinite(value) and inside and value <= most):
            above = "above" if without_least else "of at least"
            upto = f" and at most {most:g}" if math.isfinite(most) else ""
            raise argparse.ArgumentTypeError(
                f"expected a number {above} {least:g}{upto}, found {text!r}"
            )
        return value

    return read


def thresholds(text: str) -> tuple[float, ...]:
    """Read numbers above 0 that are parted by commas, each once."""
    return tuple(dict.fromkeys(number(without_least=True)(one) for one in text.split(",")))
