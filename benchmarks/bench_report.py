"""Time the whole report of an 80-case, 4-arm, 4-level run: read, verify, judge, write.

python benchmarks/bench_report.py [--repeats 5] [--out docs/results/report.json]

The run is planted in a temporary folder: three verdict suites and forced decode (46 tokens a
case), control, A/A and three arms. Each repeat is a new process, so imports count. Target: 5 s.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from evalharness.types import CellKey  # noqa: E402 - the checkout must come first
from tests.report.plant import BFCL, GSM8K, NLL, SCHEMA, Plant, plant_run  # noqa: E402

TARGET_S = 5.0
TOKENS = 46


def share(*key: object) -> float:
    """Return a number in [0, 1) that depends on the key alone."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def outcome(key: CellKey, index: int) -> str:
    """Three in four correct; each launch flips three in a hundred by itself."""
    right = share(key.suite, index) < 0.75
    flipped = share(key.arm, key.suite, key.concurrency, index) < 0.03
    return "correct" if right != flipped else "wrong"


def logprobs(key: CellKey, index: int) -> list[float | None]:
    """Forced tokens with a little noise of each launch."""
    noise = 0.0 if key.arm == "control" else 0.002
    return [
        -2 * share("token", index, t) - noise * share(key.arm, key.concurrency, index, t)
        for t in range(TOKENS)
    ]


def main() -> int:
    """Plant, time, print; exit 1 above the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    margins: dict[str, Any] = dict.fromkeys(("bfcl", "schema", "gsm8k"), 0.1)
    margins["nll.decode"] = {"nats_per_token": 0.01, "tail_nats": 0.5, "tail_share": 0.01}
    with tempfile.TemporaryDirectory() as folder:
        run = plant_run(
            Path(folder) / "run",
            Plant(
                suites=(BFCL, SCHEMA, GSM8K, NLL), concurrency=(1, 4, 8, 16), margins=margins,
                outcomes=outcome, logprobs=logprobs,
            ),
        )  # fmt: skip
        taken = [_once(run) for _ in range(args.repeats)]
        sizes = {p.name: p.stat().st_size for p in sorted((run / "report").iterdir())}
    seconds, cpu_seconds = [wall for wall, _ in taken], [cpu for _, cpu in taken]
    result = {
        "benchmark": "report of an 80-case, 4-arm, 4-level run with A/A and forced decode",
        "seconds": {"median": statistics.median(seconds), "all": seconds},
        "cpu_seconds": {"median": statistics.median(cpu_seconds), "all": cpu_seconds},
        "target_s": TARGET_S,
        "files_bytes": sizes,
        "machine": {"cpus": len(os.sched_getaffinity(0)), "python": platform.python_version()},
    }
    text = json.dumps(result, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
    return 0 if statistics.median(seconds) <= TARGET_S else 1


def _once(run: Path) -> tuple[float, float]:
    """Return wall and CPU seconds (user and system) of one report in a process of its own."""
    command = [sys.executable, "-m", "evalharness", "noninferiority", str(run)]
    used = _cpu_of_children()
    start = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - start
    if done.returncode not in (0, 10, 11, 12):
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr}")
    return taken, _cpu_of_children() - used


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
