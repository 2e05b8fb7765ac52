"""Every benchmark that needs no GPU, one after the other; writes docs/performance.md.

    python -m benchmarks.run_all [--out docs/performance.md] [--only client,stats] [--quick]

The page says when and where it was made and how busy the machine was. Timings are no test.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / ".demo" / "model"
TITLES = {
    "client": "Client, closed loop and durable store against a bare aiohttp loop, C16",
    "load": "64 streams, 20,000 requests: memory",
    "stats": "Statistics",
    "report": "The whole report",
    "scoring": "Scoring and rescoring",
    "nll": "Forced replay against free decoding",
}
COMMANDS = {
    "client": ["benchmarks/bench_client.py", "--rounds", "21"],
    "load": [
        "benchmarks/bench_client.py",
        *("--requests", "20000", "--concurrency", "64", "--rounds", "1"),
    ],
    "stats": ["benchmarks/bench_stats.py"],
    "report": ["benchmarks/bench_report.py"],
    "scoring": ["benchmarks/bench_scoring.py"],
    "nll": ["benchmarks/bench_nll.py", "--model", str(MODEL)],
}
QUICK = {
    "client": ["benchmarks/bench_client.py", "--rounds", "7"],
    "load": [
        "benchmarks/bench_client.py",
        *("--requests", "5000", "--concurrency", "64", "--rounds", "1"),
    ],
    "stats": ["benchmarks/bench_stats.py", "--repeats", "2"],
    "report": ["benchmarks/bench_report.py", "--repeats", "2"],
    "scoring": ["benchmarks/bench_scoring.py", "--rescore", "10000", "--lines", "100000"],
    "nll": ["benchmarks/bench_nll.py", "--deltas-only"],
}


def main() -> int:
    """Run the chosen benchmarks and write the page; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "performance.md")
    parser.add_argument("--only", default=",".join(TITLES), help="comma-separated names")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    args = parser.parse_args()
    names = args.only.split(",")
    unknown = [name for name in names if name not in TITLES]
    if unknown:
        parser.error(f"--only: no benchmark {', '.join(unknown)}; there are {', '.join(TITLES)}")
    parts, failed = [heading()], []
    for name in names:
        code, text = run(name, (QUICK if args.quick else COMMANDS)[name])
        if code:
            failed.append(name)
        parts.append(text)
    args.out.write_text("\n".join(parts), encoding="utf-8")
    print(f"{args.out}: {len(names) - len(failed)} of {len(names)} benchmarks ran", flush=True)
    return 1 if failed else 0


def heading() -> str:
    """Return the page's beginning: when, where, how."""
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    return (
        "# Performance of the harness itself\n\n"
        f"Made by `python -m benchmarks.run_all` on {made}; {machine}. Each part states the load "
        "average before it ran: other work on the machine makes figures worse, and ratios of "
        "alternating rounds less so.\n"
    )


def run(name: str, command: list[str]) -> tuple[int, str]:
    """Run one benchmark; returns its exit code and its part of the page."""
    load = os.getloadavg()[0]
    print(f"{name}: {' '.join(command)}", flush=True)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout, flush=True)
    shown = done.stdout.replace(f"{ROOT}/", "").strip()
    ended = "" if done.returncode == 0 else f"\n\nEnded with exit code {done.returncode}."
    text = f"## {TITLES[name]}\n\n`python {' '.join(command)}`, load {load:.1f}:\n\n"
    return done.returncode, f"{text.replace(f'{ROOT}/', '')}```\n{shown}\n```{ended}\n"


if __name__ == "__main__":
    sys.exit(main())
