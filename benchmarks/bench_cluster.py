"""The Ray executor beside the local one, and scoring and judging many runs on one machine.

    python benchmarks/bench_cluster.py overhead [--rounds 2] [--delay 0.4]
    python benchmarks/bench_cluster.py growth [--responses 120000,1000000,10000000] [--folder DIR]

overhead: the same factorial over loopback servers, with `--executor local` and on a Ray cluster of
    this machine alone that runs already; commands alternate, wall clock of the whole command.
growth: runs of 40,000 stored gsm8k responses (control, A/A and three arms, C1 to C16), copied as
    often as needed; `rescore` and `noninferiority --each` over all of them with Ray Data. The
    folder needs about 1.2 GB per million responses; it is removed at the end.

Results go to standard output as JSON, and to --out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
RUN_RESPONSES = 40_000
CASES, LEVELS = 2_000, (1, 4, 8, 16)


def command(*arguments: str) -> dict[str, float]:
    """Run `evalharness` to its end; wall and CPU seconds, and MiB of its largest process."""
    before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "evalharness", *arguments],
        cwd=ROOT,
        env={**os.environ, **QUIET, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    wall_s = time.monotonic() - started_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 10, 11):
        raise SystemExit(f"{arguments[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return {
        "wall_s": round(wall_s, 2),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "largest_child_mib": round(after.ru_maxrss / 1024),
    }


@contextmanager
def cluster() -> Iterator[str]:
    """Run a Ray cluster of this machine alone; yields its address."""
    folder = Path(tempfile.mkdtemp(prefix="eh-ray-", dir="/tmp"))
    port = "6397"
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    start = [
        *ray, "start", "--head", f"--port={port}", "--include-dashboard=false",
        f"--temp-dir={folder}", "--object-store-memory=200000000", "--disable-usage-stats",
    ]  # fmt: skip
    process = subprocess.Popen(
        [*start, "--block"], env={**os.environ, **QUIET}, stdout=subprocess.DEVNULL
    )
    try:
        time.sleep(12)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def overhead(rounds: int, delay_s: float) -> dict[str, Any]:
    """Time both executors on the same factorial in alternation.

    `before_s`: from the command to the frozen plan (connecting, examining nodes, digests), once a
    command; `launches_s`: all launches, scoring and the report.
    """
    from tests.cluster.wide_run import WideFactorial

    taken: dict[str, list[dict[str, float]]] = {"local": [], "ray": []}
    with cluster() as address, tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for name in taken:
                work = WideFactorial(Path(folder) / f"{name}{number}", delay_s=delay_s)
                more = ("--executor", "ray", "--ray-address", address) if name == "ray" else ()
                started_s = time.time()
                whole = command(*work.command(*more)[3:])
                before_s = (work.run / "plan.json").stat().st_mtime - started_s
                taken[name].append(
                    {
                        "wall_s": whole["wall_s"],
                        "before_s": round(before_s, 2),
                        "launches_s": round(whole["wall_s"] - before_s, 2),
                        "load": round(os.getloadavg()[0], 1),
                    }
                )
                print(name, taken[name][-1], file=sys.stderr, flush=True)
    ratios = {
        part: round(_median(taken["ray"], part) / _median(taken["local"], part), 4)
        for part in ("wall_s", "launches_s")
    }
    return {"launches": 12, "delay_s": delay_s, "taken": taken, "ray_over_local": ratios}


def _median(rows: Sequence[dict[str, float]], part: str) -> float:
    return statistics.median(row[part] for row in rows)


def plant_base(run: Path) -> None:
    """Write a run of 40,000 stored responses that can be rescored and judged."""
    from evalharness.manifest import freeze_into, load_manifest
    from evalharness.registry import suite_named
    from tests.report.plant import Plant, SuiteSpec, plant_run, write_sums

    spec = SuiteSpec("gsm8k", "chat", CASES, "gsm8k", "strict/1")
    plant = Plant(
        suites=(spec,),
        concurrency=LEVELS,
        margins={"gsm8k": 0.02},
        outcomes=_outcome,
        answers=_answer,
    )
    plant_run(run, plant)
    shutil.rmtree(run / "scores")
    path = run / "manifest.json"
    document = json.loads(path.read_text())
    suite = suite_named("gsm8k")
    rows = [
        {"question": f"A crate holds {i} jars. How many?", "answer": f"It holds {i}.\n#### {i}"}
        for i in range(CASES)
    ]
    listed = document["suites"]["gsm8k"]["cases"]
    cases = [suite.to_case(one["id"], row) for one, row in zip(listed, rows, strict=True)]
    for one, case in zip(listed, cases, strict=True):
        one["sha256"] = case.digest
    path.write_text(json.dumps(document, indent=1) + "\n")
    manifest = load_manifest(path)
    freeze_into(run, manifest, {"gsm8k": cases})
    plan = json.loads((run / "plan.json").read_text())
    plan["manifest"]["sha256"] = manifest.sha256
    (run / "plan.json").write_text(json.dumps(plan, indent=1) + "\n")
    write_sums(run)


def _outcome(key: Any, index: int) -> str:
    noise = (index * 31 + len(key.arm) * 7 + key.concurrency) % 50 == 0
    return "wrong" if (index % 4 == 3) != noise else "correct"


def _answer(key: Any, index: int, outcome: str) -> str:
    del key
    return f"So {index} it is.\n#### {index if outcome == 'correct' else index + 1}"


def growth(sizes: Sequence[int], folder: Path) -> dict[str, Any]:
    """Rescore and judge more and more runs; seconds, and how they grow."""
    folder.mkdir(parents=True)
    rows = []
    try:
        base = folder / "run-0000"
        plant_base(base)
        bytes_per_run = sum(path.stat().st_size for path in base.rglob("*") if path.is_file())
        with cluster() as address:
            for size in sizes:
                rows.append(_grown(folder, base, size // RUN_RESPONSES, address))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder)
    return {"bytes_per_response": round(bytes_per_run / RUN_RESPONSES), "sizes": rows}


def _grown(folder: Path, base: Path, runs: int, address: str) -> dict[str, Any]:
    names = [folder / f"run-{number:04d}" for number in range(runs)]
    for name in names:
        if not name.exists():
            shutil.copytree(base, name, ignore=shutil.ignore_patterns("scores", "report"))
        for made in ("scores", "report"):
            shutil.rmtree(name / made, ignore_errors=True)
    where = ("--executor", "ray", "--ray-address", address)
    paths = [str(name) for name in names]
    rescored = command("rescore", *paths, "--scorer", "strict", *where)
    judged = command("noninferiority", "--each", *paths, "--format", "json", *where)
    return {
        "responses": runs * RUN_RESPONSES,
        "runs": runs,
        "rescore": rescored,
        "judge": judged,
        "microseconds_per_response": {
            "rescore": round(1e6 * rescored["wall_s"] / (runs * RUN_RESPONSES), 1),
            "judge": round(1e6 * judged["wall_s"] / (runs * RUN_RESPONSES), 1),
        },
    }


def main() -> None:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("overhead", "growth"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--delay", type=float, default=0.4)
    parser.add_argument("--responses", default="120000,1000000,10000000")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "eh-growth")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result: dict[str, Any] = {
        "cpus": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
    }
    if args.what == "overhead":
        result["overhead"] = overhead(args.rounds, args.delay)
    else:
        sizes = [int(text) for text in args.responses.split(",")]
        result["growth"] = growth(sizes, args.folder)
    text = json.dumps(result, indent=1) + "\n"
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
