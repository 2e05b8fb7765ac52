# SPDX-License-Identifier: Apache-2.0
"""Write the bench of a results file into the README, one line a case, fastest candidate first.

`python -m kernels_sm70.bench.summary docs/results/kernels-h200/results.json` replaces what stands
between the README's markers. Losing candidates and missed targets are part of every line.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from kernels_sm70.contract import PACKAGE_ROOT

README = PACKAGE_ROOT / "README.md"
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def _time(row: dict[str, Any]) -> str:
    if row["us"] is None:
        return f"{row['candidate']}: absent ({row['note']})"
    return f"{row['candidate']} {row['us']:.2f} ({row['floors']:.2f}x)"


def _verdict(rows: list[dict[str, Any]]) -> str:
    words = []
    for row in rows:
        if not row["target"]:
            continue
        state = {True: "met", False: "missed", None: "undecided"}[row["met"]]
        speed = "" if row["speedup"] is None else f", {row['speedup']:.2f}x the baseline"
        words.append(f"{row['candidate']} {row['target']}: {state}{speed}")
    return "; ".join(words)


def case_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown table lines: operation and case, floor, candidates by time, targets."""
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        grouped.setdefault((row["operation"], row["case"]), []).append(row)
    lines = ["| operation | case | MB | floor us | us (times the floor), fastest first | targets |"]
    lines.append("|---|---|---|---|---|---|")
    for (operation, case), group in grouped.items():
        ordered = sorted(group, key=lambda row: (row["us"] is None, row["us"] or 0.0))
        times = "; ".join(_time(row) for row in ordered)
        head = f"| {operation} | {case} | {group[0]['bytes'] / 1e6:.3f} "
        lines.append(f"{head}| {group[0]['floor_us']:.3f} | {times} | {_verdict(group)} |")
    return lines


def section(results: dict[str, Any], source: str) -> str:
    """The README's section for one results document."""
    facts, speed = results["facts"], results["copy_bytes_per_s"] / 1e12
    lines = [
        f"{facts['card']}, driver {facts['driver']}, torch {facts['torch']}, {facts['date']}, "
        f"commit {facts['commit']}. All rows: [results.md]({source}). Median of graph replays over "
        f"16 rotated weight sets, candidates alternating in one run; floors are bytes over the "
        f"copy speed measured in the same run, {speed:.2f} TB/s.",
        "",
        *case_lines(results["bench"]),
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Rewrite the README between its markers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path)
    path: Path = parser.parse_args(argv).results
    link = Path("..") / path.resolve().relative_to(PACKAGE_ROOT.parent).with_suffix(".md")
    text = README.read_text()
    block = f"{BEGIN}\n{section(json.loads(path.read_text()), link.as_posix())}\n{END}"
    pattern = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    if not pattern.search(text):
        print(f"{README}: the markers {BEGIN} and {END} are gone", file=sys.stderr)
        return 1
    README.write_text(pattern.sub(lambda _: block, text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
