#!/usr/bin/env python3
"""How time and memory grow from a thousand responses to a million: asking, rescoring, reporting.

    python -m benchmarks.bench_growth [--sizes 1000,10000,100000] [--plot docs/performance.png]

asking     one drive of N requests at C16 against the loopback server, every response synced
rescoring  `evalharness rescore` of N stored BFCL responses in up to 28 cells
reporting  `evalharness noninferiority` of N stored responses: five launches, C1 and C16

Each size is a process of its own. Prints a Markdown table. With --json the figures are saved after
every measurement, and those that are there are kept: a cut-off run goes on. Timings are no test.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.loopback import loopback_server
from benchmarks.peer_environments import environment

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("asking", "rescoring", "reporting")
LAUNCHES, LEVELS = 5, (1, 16)
Figures = dict[str, float]


def ask(url: str, folder: Path, size: int) -> None:
    """The child: one drive, from the first request to the last sync."""
    from benchmarks.bench_client import HEADS, harness, make_requests
    from evalharness.store import LineHead

    base = make_requests(min(size, 1319))
    HEADS.update({one.request.case_id: LineHead(one.request, one.digest) for one in base})
    requests = [base[number % len(base)] for number in range(size)]
    asyncio.run(harness(url, requests, 16, folder))


def prepare(part: str, folder: Path, size: int) -> None:
    """The child that writes what a part reads: stored BFCL responses, or a scored run."""
    if part == "rescoring":
        from benchmarks.bench_scoring import make_run

        run = folder / "run"
        run.mkdir()
        make_run(run, responses=size, cells=min(28, max(1, size // 1000)))
    elif part == "reporting":
        from tests.report.plant import Plant, SuiteSpec, plant_run

        suite = SuiteSpec("gsm8k", "chat", size // (LAUNCHES * len(LEVELS)), "gsm8k", "strict/1")
        plant_run(folder / "run", Plant((suite,), concurrency=LEVELS, margins={"gsm8k": 0.1}))


def measure(part: str, folder: Path, size: int) -> Figures:
    """Measure one part at one size. All heavy work is in children: a child's largest memory is
    never less than its parent's at the moment of the fork."""
    me = [sys.executable, "-m", "benchmarks.bench_growth"]
    where = ["--sizes", str(size), "--folder", str(folder)]
    if part == "asking":
        with loopback_server() as url:
            return timed([*me, "--ask", url, *where])
    timed([*me, "--prepare", part, *where])
    harness = [sys.executable, "-m", "evalharness"]
    if part == "rescoring":
        return timed([*harness, "rescore", str(folder / "run"), "--scorer", "official"])
    return timed([*harness, "noninferiority", str(folder / "run")], exits=(0, 10, 11, 12))


def timed(command: Sequence[str], *, exits: Sequence[int] = (0,)) -> Figures:
    """Run a process; seconds of wall clock and CPU, MiB of its largest process. SystemExit."""
    began_s = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment(), "PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in exits:
            out.seek(0)
            said = out.read().decode("utf-8", "replace")[-2000:]
            raise SystemExit(f"{' '.join(command)}: exit {process.returncode}\n{said}")
    return {
        "wall_s": round(time.perf_counter() - began_s, 3),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
        "mib": round(usage.ru_maxrss / 1024, 1),
    }


def measure_all(
    sizes: Sequence[int], parts: Sequence[str], saved: Path | None
) -> dict[str, dict[int, Figures]]:
    """Measure what is not saved yet, each in a folder of its own; smaller sizes first."""
    found = _read(saved)
    for size in sizes:
        for part in parts:
            if size in found[part]:
                continue
            with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as name:
                found[part][size] = measure(part, Path(name), size)
            print(f"{part} {size}: {found[part][size]}", file=sys.stderr, flush=True)
            if saved is not None:
                saved.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def _read(saved: Path | None) -> dict[str, dict[int, Figures]]:
    """Return the saved figures of every part, none where there are none."""
    text = saved.read_text(encoding="utf-8") if saved is not None and saved.exists() else "{}"
    rows = {part: json.loads(text).get(part, {}) for part in PARTS}
    return {part: {int(size): row for size, row in by.items()} for part, by in rows.items()}


def table(found: Mapping[str, Mapping[int, Figures]]) -> str:
    """Return the Markdown table: wall clock, CPU, memory, and responses a second."""
    lines = [
        "| | responses | s | CPU s | responses/s | largest process MiB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for part, by_size in found.items():
        for size, row in by_size.items():
            lines.append(
                f"| {part} | {size:,} | {row['wall_s']:.2f} | {row['cpu_s']:.2f} | "
                f"{size / row['wall_s']:,.0f} | {row['mib']:.0f} |"
            )
    return "\n".join(lines)


def plot(found: Mapping[str, Mapping[int, Figures]], path: Path) -> None:
    """Draw seconds and MiB over the number of responses, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    marks = dict(zip(PARTS, ("o-", "s-", "^-"), strict=True))
    for axes, key, label in zip(panels, ("wall_s", "mib"), ("seconds", "MiB"), strict=True):
        for part, by_size in found.items():
            axes.plot(
                list(by_size), [row[key] for row in by_size.values()], marks[part], label=part
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("responses")
        axes.set_ylabel(label)
        axes.grid(color="#e4e7eb", linewidth=0.6)
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def main() -> int:
    """Measure, print the table, draw the plot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000,100000,1000000")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--ask", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--prepare", metavar="PART", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    if args.ask:
        ask(args.ask, args.folder, sizes[0])
        return 0
    if args.prepare:
        prepare(args.prepare, args.folder, sizes[0])
        return 0
    found = measure_all(sizes, args.parts.split(","), args.json)
    print(table(found))
    if args.plot:
        plot(found, args.plot)
        print(f"\n![Time and memory over responses]({args.plot.name})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
