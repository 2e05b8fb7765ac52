"""Speed of the scorers and of offline rescoring.

    python benchmarks/bench_scoring.py [--vectors DIR] [--rescore 100000] [--lines 1000000]
        [--out docs/results/scoring.json]

1. BFCL verdicts per second on one core: ours beside bfcl-eval's own checker, on the same parsed
   rows, alternating in one process (CPU time); median over the pairs.
2. Rescoring of stored BFCL responses end to end (wall clock, resident set of the largest process).
3. One response file of a million lines: resident set.

Needs bfcl-eval's wheel (`evalharness data fetch bfcl`). Rows: the vector file where --vectors is
given, else mutations of the data set.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PAIRS, PASSES = 9, 10
Row = dict[str, Any]


def vector_rows(folder: Path | None) -> tuple[list[Row], str]:
    """Return the BFCL rows to judge, and what they are."""
    from evalharness.data import KNOWN, rows
    from tools.bfcl_reference.mutations import mutated_rows

    if folder is not None:
        path = folder / "bfcl_public.jsonl"
        with path.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file], path.name
    items = [
        {
            "category": row_id.rpartition("_")[0],
            "functions": row["function"],
            "gold": row.get("ground_truth"),
        }
        for row_id, row in rows(KNOWN["bfcl"]).items()
        if not row_id.startswith("live_relevance")
    ]
    return list(mutated_rows(items, seed=1, count=3000)), "3000 mutations"


def verdict_speed(found: Sequence[Row]) -> dict[str, Any]:
    """Time both checkers over the same rows in alternation; verdicts per second of CPU."""
    from evalharness.bfcl.checker import judge
    from evalharness.bfcl.score import score_vector
    from evalharness.data import KNOWN, fetch
    from tools.bfcl_reference.official import load_checker

    official = load_checker(fetch(KNOWN["bfcl"]))
    judged = [row for row in found if row["gold"] is not None]
    calls = [[(c["name"], c["arguments"]) for c in row["calls"]] for row in judged]

    def ours() -> None:
        for row, made in zip(judged, calls, strict=True):
            judge(row["category"], functions=row["functions"], golds=row["gold"], calls=made)

    def theirs() -> None:
        for row in judged:
            official(row)

    def whole() -> None:
        for row in judged:
            score_vector(row, "official/1")

    speeds: dict[str, list[float]] = {"ours": [], "bfcl-eval": [], "ours, from the row": []}
    for _ in range(PAIRS):
        for name, run in (("ours", ours), ("bfcl-eval", theirs), ("ours, from the row", whole)):
            speeds[name].append(_per_second(run, len(judged)))
    result: dict[str, Any] = {name: round(statistics.median(s)) for name, s in speeds.items()}
    ratios = [a / b for a, b in zip(speeds["ours"], speeds["bfcl-eval"], strict=True)]
    result["ratio, median of pairs"] = round(statistics.median(ratios), 2)
    return result


def _per_second(run: Callable[[], None], rows: int) -> float:
    started_s = time.process_time()
    for _ in range(PASSES):
        run()
    return PASSES * rows / (time.process_time() - started_s)


def make_run(folder: Path, *, responses: int, cells: int) -> int:
    """Write a run with about `responses` stored BFCL responses in `cells` cells; returns them."""
    from evalharness.manifest import freeze_into, load_cases, load_manifest
    from evalharness.store.lines import encode_line
    from evalharness.types import CellKey
    from tools.stored_run import bfcl_oracle, chat_body, make_response, write_cell

    manifest = load_manifest(ROOT / "manifests" / "bfcl-single-turn.json")
    cases = load_cases(manifest)
    freeze_into(folder, manifest, cases)
    entry = manifest.entries["bfcl"]
    replies = [chat_body("no"), None, None, chat_body(None, calls=[("x", '{"a": ')])]
    per_cell = responses // cells

    def lines(cell: int) -> Iterator[bytes]:
        for number in range(per_cell):
            case = cases["bfcl"][number % len(cases["bfcl"])]
            body = replies[(cell + number) % 4] or bfcl_oracle(case)
            replicate = number // len(cases["bfcl"])
            yield encode_line(make_response(entry, case, body, mode="tools", replicate=replicate))

    for cell in range(cells):
        key = CellKey(f"arm{cell // 4}", "bfcl", "tools", 4 ** (cell % 4), 0)
        write_cell(folder, key, lines(cell))
    return per_cell * cells


def rescore(folder: Path) -> dict[str, Any]:
    """Run `evalharness rescore` in a process of its own; seconds and MiB of its largest process."""
    command = [sys.executable, "-m", "evalharness", "rescore", str(folder), "--scorer", "official"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    started_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, env=env, text=True, check=False)
    wall_s = time.monotonic() - started_s
    if done.returncode != 0:
        raise SystemExit(f"rescore ended with {done.returncode}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "wall_s": round(wall_s, 2),
        "cpu_s": round(cpu_s, 2),
        "largest_process_mib": round(after.ru_maxrss / 1024),
        "said": done.stdout.splitlines()[-1],
    }


def main() -> None:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--rescore", type=int, default=100_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found, what = vector_rows(args.vectors)
    result: dict[str, Any] = {
        "cpus": len(os.sched_getaffinity(0)),
        "rows": what,
        "verdicts_per_cpu_second": verdict_speed(found),
    }
    for name, count, cells in (("rescore", args.rescore, 28), ("one file", args.lines, 1)):
        if count:
            with tempfile.TemporaryDirectory() as folder:
                made = make_run(Path(folder), responses=count, cells=cells)
                result[name] = {"responses": made, **rescore(Path(folder))}
    text = json.dumps(result, indent=1) + "\n"
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
