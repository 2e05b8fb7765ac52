"""Speed of the statistics, printed as a table; nothing here gates a test.

Run: OMP_NUM_THREADS=2 python benchmarks/bench_stats.py [--repeats 5] [--json FILE]
The target: 10,000 resamples over 1319 cases x 4 arms x 4 levels of concurrency in under 1 s
on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import evalharness.stats as stats
from evalharness.stats._exact import (  # caches are emptied so that each repeat is a first call
    _all_tables,
    _table_scores,
    exact_unconditional_p,
)
from evalharness.verdicts import judge
from evalharness.verdicts.types import OutcomeTable, PlanArm, PlanFacts

RESAMPLES = 10_000
ARMS = ("control", "aa", "a", "b", "ab")


def median_s(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median and best wall time in seconds, after one unmeasured call."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times), min(times)


def shared_resamples(cases: int) -> Callable[[], object]:
    """4 arms x 4 levels: 16 outcome columns share every resample; all their intervals."""
    rng = np.random.default_rng(1)
    outcomes = rng.integers(0, 2, size=(cases, 16))

    def work() -> object:
        sums = stats.bootstrap_sums(outcomes, RESAMPLES, 1)
        return np.quantile(sums / cases, [0.025, 0.975], axis=0)

    return work


def token_ratio(cases: int) -> Callable[[], object]:
    """Studentized interval of a token-weighted mean over cases."""
    rng = np.random.default_rng(2)
    sizes = rng.integers(20, 70, size=cases)
    sums = rng.normal(0, 1, size=cases)
    return lambda: stats.cluster_bootstrap(sums, sizes, RESAMPLES, 1)


def first_gate(n: int) -> Callable[[], object]:
    """One gate with cold caches."""

    def work() -> object:
        for cache in (_all_tables, _table_scores, exact_unconditional_p):
            cache.cache_clear()
        return stats.noninferiority(n // 100, n // 80, n, 0.05)

    return work


def whole_run(cases: int) -> Callable[[], object]:
    """The judge on a 2x2 factorial with A/A at four levels."""
    rng = np.random.default_rng(3)
    base = (rng.random(cases) < 0.8).astype(np.int8)
    tables = []
    for level in (1, 4, 8, 16):
        cube = np.repeat(base[None, None, :], len(ARMS), axis=0).copy()
        for arm in range(1, len(ARMS)):
            cube[arm, 0, rng.integers(0, cases, max(2, cases // 25))] ^= 1
        ids = tuple(str(i) for i in range(cases))
        tables.append(OutcomeTable("bfcl", "tools", level, "m", "official/1", ARMS, ids, cube))
    levels = {"control": "00", "aa": "00", "a": "10", "b": "01", "ab": "11"}
    arms = tuple(PlanArm(n, (("f", levels[n][0]), ("g", levels[n][1]))) for n in ARMS)
    plan = PlanFacts(
        declared=True, changed=(), alpha=0.025, margins=(("bfcl", 0.05),), nll_margins=(),
        gate_concurrency=(1, 4, 8, 16), sequence="holm", arms=arms,
        factors=(("f", ("0", "1")), ("g", ("0", "1"))), control="control", aa="aa", replays=1,
        suites=(("bfcl", "tools"),), seed=1,
    )  # fmt: skip

    def work() -> object:
        exact_unconditional_p.cache_clear()
        return judge(plan, tables)

    return work


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args(argv)
    jobs: list[tuple[str, Callable[[], object], float | None]] = []
    for n, target in ((80, None), (1319, 1.0), (4441, None)):
        jobs.append((f"10,000 resamples, {n} cases x 16 columns", shared_resamples(n), target))
    for n in (80, 1319):
        jobs.append((f"studentized token mean, {n} cases, 10,000 resamples", token_ratio(n), None))
    for n in (64, 80, 400):
        jobs.append((f"gate with exact p, {n} cases, cold", first_gate(n), 1.0))
    for n in (80, 400, 1319):
        jobs.append((f"judge: {n} cases, 3 arms + A/A, 4 levels", whole_run(n), None))
    threads = os.environ.get("OMP_NUM_THREADS", "unset")
    print(f"numpy {np.__version__}, {os.cpu_count()} CPUs, OMP_NUM_THREADS={threads}")
    print(f"{'what':<52} {'median s':>9} {'best s':>8} {'target s':>9}")
    rows = []
    for name, work, target in jobs:
        median, best = median_s(work, args.repeats)
        shown = "" if target is None else f"{target:.1f}"
        print(f"{name:<52} {median:>9.4f} {best:>8.4f} {shown:>9}")
        rows.append({"what": name, "median_s": median, "best_s": best, "target_s": target})
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
