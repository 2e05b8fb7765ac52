"""How often is a difference claimed where there is none, by repeats and by comparisons shared?

Log ratios of equal arms are drawn (normal; Student's t with 3 degrees of freedom; skewed), and the
product's own `compare` judges them. Widths are in standard deviations of one repeat.

  python -m benchmarks.bench_speed_interval [--runs 200]      # prints a Markdown table
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from evalharness.speed import contrasts
from evalharness.speed.contrasts import Family, Pair, compare
from evalharness.speed.figures import STEP, CellFigures

SD = 0.01
REPEATS = (4, 6, 8, 12)
COMPARISONS = (1, 12)
Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
NOISES: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(0, 1, n),
    "t, 3 df": lambda rng, n: rng.standard_t(3, n) / math.sqrt(3),
    "skewed": lambda rng, n: rng.exponential(1, n) - 1,
}


def judge(logs: NDArray[np.float64], comparisons: int) -> tuple[bool, float | None]:
    """Return (claimed, half-width in SD) for the log ratios of one run."""
    one = CellFigures(1, 1, 1, {STEP: 10.0})
    pairs = [
        Pair(f"repeat {i}", (0, i, i), one, CellFigures(1, 1, 1, {STEP: 10 * math.exp(SD * x)}))
        for i, x in enumerate(logs)
    ]
    found = compare(pairs, STEP, Family(len(pairs), comparisons, seed=7))
    assert found.ratio is not None
    if found.ratio.lower is None or found.ratio.upper is None:
        return False, None
    return found.claim != "none", (found.ratio.upper - found.ratio.lower) / 2 / SD


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--repeats", type=int, nargs="+", default=REPEATS)
    args = parser.parse_args()
    contrasts.MIN_REPEATS = 2  # to see what the bound is for
    print("| repeats | comparisons | noise | claimed at 0% | no interval | median half-width, SD |")
    print("|---|---|---|---|---|---|")
    for repeats in args.repeats:
        for comparisons in COMPARISONS:
            for name, draw in NOISES.items():
                rng = np.random.default_rng(7)
                found = [judge(draw(rng, repeats), comparisons) for _ in range(args.runs)]
                widths = sorted(math.inf if w is None else w for _, w in found)
                share = sum(claimed for claimed, _ in found) / args.runs
                without = sum(width is None for _, width in found) / args.runs
                print(
                    f"| {repeats} | {comparisons} | {name} | {100 * share:.1f}% | "
                    f"{100 * without:.1f}% | {widths[len(widths) // 2]:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
