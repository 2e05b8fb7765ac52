"""Every benchmark that needs no GPU, one after the other; writes docs/performance.md.

    python -m benchmarks.run_all [--out docs/performance.md] [--only peers,client] [--quick]

Each part of the page says when it ran and how busy the machine was. With --only, the other parts
stay as they are. Timings are no test.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / ".demo" / "model"
TITLES = {
    "peers": "Whole processes beside a bare loop, lm-evaluation-harness and inspect_ai",
    "client": "Client, closed loop and durable store against a bare aiohttp loop, C16",
    "load": "64 streams, 20,000 requests: memory",
    "stats": "Statistics",
    "report": "The whole report",
    "scoring": "Scoring and rescoring",
    "nll": "Forced replay against free decoding",
    "cluster": "The Ray executor beside the local one",
    "growth": "Growth with the number of responses",
}
# These print Markdown; the output of the others is shown as it is.
MARKDOWN = frozenset({"peers", "growth"})
PLOT = ["--plot", "docs/performance.png"]
COMMANDS = {
    "peers": ["-m", "benchmarks.bench_peers", "--json", "docs/results/peers.json"],
    "client": ["-m", "benchmarks.bench_client", "--rounds", "21"],
    "load": [
        *("-m", "benchmarks.bench_client"),
        *("--requests", "20000", "--concurrency", "64", "--rounds", "1"),
    ],
    "stats": ["benchmarks/bench_stats.py"],
    "report": ["benchmarks/bench_report.py"],
    "scoring": ["benchmarks/bench_scoring.py", "--lines", "0"],  # a million: in growth
    "nll": ["benchmarks/bench_nll.py", "--model", str(MODEL)],
    "cluster": ["benchmarks/bench_cluster.py", "overhead"],
    "growth": ["-m", "benchmarks.bench_growth", *PLOT, "--json", "docs/results/growth.json"],
}
QUICK = {
    "peers": ["-m", "benchmarks.bench_peers", "--rounds", "2", "--slow-rounds", "1"],
    "client": ["-m", "benchmarks.bench_client", "--rounds", "7"],
    "load": [
        *("-m", "benchmarks.bench_client"),
        *("--requests", "5000", "--concurrency", "64", "--rounds", "1"),
    ],
    "stats": ["benchmarks/bench_stats.py", "--repeats", "2"],
    "report": ["benchmarks/bench_report.py", "--repeats", "2"],
    "scoring": ["benchmarks/bench_scoring.py", "--rescore", "10000", "--lines", "0"],
    "nll": ["benchmarks/bench_nll.py", "--deltas-only"],
    "cluster": ["benchmarks/bench_cluster.py", "overhead", "--rounds", "1", "--delay", "0.1"],
    "growth": ["-m", "benchmarks.bench_growth", "--sizes", "1000,10000"],
}


def main() -> int:
    """Run the chosen benchmarks and write the page; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "performance.md")
    parser.add_argument("--only", default=",".join(TITLES), help="comma-separated names")
    parser.add_argument("--sizes", help="of growth; default a thousand to a million")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    args = parser.parse_args()
    names = args.only.split(",")
    unknown = [name for name in names if name not in TITLES]
    if unknown:
        parser.error(f"--only: no benchmark {', '.join(unknown)}; there are {', '.join(TITLES)}")
    parts, failed = kept(args.out), []
    for name in names:
        command = (QUICK if args.quick else COMMANDS)[name]
        if name == "growth" and args.sizes:
            command = [*command, "--sizes", args.sizes]
        code, text = run(name, command)
        if code:
            failed.append(name)
        parts[name] = text
        page = [heading(), *(parts[name] for name in TITLES if name in parts)]
        args.out.write_text("\n".join(page), encoding="utf-8")
    print(f"{args.out}: {len(names) - len(failed)} of {len(names)} benchmarks ran", flush=True)
    return 1 if failed else 0


def kept(page: Path) -> dict[str, str]:
    """Return the parts that stand in the page, by name."""
    names = {title: name for name, title in TITLES.items()}
    found: dict[str, str] = {}
    for part in page.read_text(encoding="utf-8").split("\n## ")[1:] if page.exists() else []:
        title = part.partition("\n")[0]
        if title in names:
            found[names[title]] = f"## {part.rstrip()}\n"
    return found


def heading() -> str:
    """Return the page's beginning: how it was made, and where."""
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    return (
        "# Performance of the harness itself\n\n"
        f"Made by `python -m benchmarks.run_all`; {machine}. Each part says when it ran and the "
        "load average before it: other work on the machine makes figures worse, and ratios of "
        "alternating rounds less so.\n"
    )


def run(name: str, command: list[str]) -> tuple[int, str]:
    """Run one benchmark; returns its exit code and its part of the page."""
    load, began = os.getloadavg()[0], time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    print(f"{name}: {' '.join(command)}", flush=True)
    with tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            check=False,
        )
        errors.seek(0)
        said = errors.read()
    print(done.stdout, said, flush=True)
    shown = done.stdout.replace(f"{ROOT}/", "").strip()
    ended = "" if done.returncode == 0 else f"\n\nEnded with exit code {done.returncode}."
    text = f"## {TITLES[name]}\n\n`python {' '.join(command)}`, {began}, load {load:.1f}:\n\n"
    body = shown if name in MARKDOWN else f"```\n{shown}\n```"
    return done.returncode, f"{text.replace(f'{ROOT}/', '')}{body}{ended}\n"


if __name__ == "__main__":
    sys.exit(main())
