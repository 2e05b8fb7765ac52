#!/usr/bin/env python3
"""`make demo`: the 2x2 factorial of manifests/arms/demo.yaml on vLLM's CPU build, with its budget.

Run from the repository's root after the environment and the model are made (the Makefile does
both). Run again after an interruption, it continues; run again when finished, it prints the table.

  python -m tools.demo --model .demo/model [--out runs/demo] [--size full|medium|small]
                       [--write-budget docs/demo-budget.md]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ARMS = Path("manifests/arms/demo.yaml")
MANIFESTS = {
    "full": Path("manifests/demo.json"),
    "medium": Path("manifests/demo-medium.json"),
    "small": Path("manifests/demo-small.json"),
}
CONCURRENCY = "1,4,8,16"
SEED = "7"
BUDGET_S = 20 * 60


def main() -> int:
    """Run the demo; returns the factorial's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=Path(".demo/model"))
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--started", type=float, help="when `make demo` began, in epoch seconds")
    parser.add_argument("--size", choices=sorted(MANIFESTS), help="default: by the machine's pace")
    parser.add_argument("--write-budget", type=Path, metavar="FILE")
    args = parser.parse_args()
    expected = ROOT / ".demo" / "model"
    if args.model.resolve() != expected.resolve() or not (expected / "config.json").is_file():
        sys.stderr.write(f"demo: expected the model at {expected} ({ARMS} names it): make model\n")
        return 2
    began_s = time.time()
    fetch = [sys.executable, "-m", "evalharness", "data", "fetch", "bfcl"]
    fetched = subprocess.run(fetch, cwd=ROOT, check=False).returncode
    if fetched != 0:
        return fetched
    command = [sys.executable, "-m", "evalharness", "factorial"]
    manifest = MANIFESTS[args.size or started_size(args.out) or size_by_pace()]
    command += ["--arms", str(ARMS), "--manifest", str(manifest), "--out", str(args.out)]
    command += ["--concurrency", CONCURRENCY, "--seed", SEED]
    print(f"$ evalharness {' '.join(command[3:])}", flush=True)
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    ended_s = time.time()
    if (args.out / "plan.json").is_file():
        setup_s = began_s - args.started if args.started else None
        table = budget(args.out, setup_s=setup_s, factorial_s=ended_s - began_s)
        print(f"\n{table}", end="")
        if args.write_budget:
            args.write_budget.write_text(f"# Budget of `make demo`\n\n{table}", encoding="utf-8")
    if code == 0:
        print(f"\nreport: {(args.out / 'report' / 'index.html').resolve()}")
    return code


def started_size(run: Path) -> str | None:
    """Return the size of a run that was begun, whose plan is frozen; None without one."""
    plan = run / "plan.json"
    if not plan.is_file():
        return None
    name = _read(plan)["manifest"]["name"]
    return next((size for size, path in MANIFESTS.items() if path.stem == name), None)


def size_by_pace() -> str:
    """Time a decoding step and say which manifest this machine ends in time."""
    from tools.demo_pace import MOST_STEP_S, step_seconds

    step_s = step_seconds()
    size = next((name for name, most_s in MOST_STEP_S.items() if step_s <= most_s), "small")
    limits = ", ".join(
        f"{name} up to {1000 * most_s:.0f} ms" for name, most_s in MOST_STEP_S.items()
    )
    print(
        f"a decoding step's arithmetic takes {1000 * step_s:.0f} ms here, so the {size} manifest "
        f"is asked ({limits}; or give --size)",
        flush=True,
    )
    return size


def budget(run: Path, *, setup_s: float | None, factorial_s: float) -> str:
    """Return the stages as a Markdown table: what each took, against the whole budget."""
    servers = [_read(path) for path in sorted(run.glob("arms/*/*/server.json"))]
    cells = [_read(path) for path in sorted(run.glob("responses/*/*/*.cell.json"))]
    starts_s = [server["ready_s"] for server in servers if server["ready_s"] is not None]
    stops_s = [(server["stopped"] or {}).get("after_s") or 0.0 for server in servers]
    rows: list[tuple[str, float, str]] = []
    if setup_s is not None:
        rows.append(("environment, vLLM and model", setup_s, "0 when already made"))
    rows.append(("server starts", sum(starts_s), f"{len(starts_s)} launches"))
    for width in sorted({cell["concurrency"] for cell in cells}):
        chosen = [cell for cell in cells if cell["concurrency"] == width]
        tokens = sum(cell["output_tokens"] for cell in chosen)
        wall_s = sum(cell["wall_s"] for cell in chosen)
        rate = tokens / wall_s if wall_s else 0.0
        requests = sum(cell["rows"] for cell in chosen)
        rows.append((f"cells at C{width}", wall_s, f"{requests} requests, {rate:.0f} tokens/s"))
    known_s = sum(starts_s) + sum(stops_s) + sum(cell["wall_s"] for cell in cells)
    rows.append(("server stops", sum(stops_s), ""))
    rest_s = max(0.0, factorial_s - known_s)
    rows.append(("digests, data, scores, report, table", rest_s, "the factorial's remainder"))
    total_s = sum(seconds for _, seconds, _ in rows)
    lines = ["| stage | seconds | what |", "|---|---|---|"]
    lines += [f"| {name} | {seconds:.0f} | {what} |" for name, seconds, what in rows]
    lines.append(f"| **all** | **{total_s:.0f}** | budget {BUDGET_S} s |")
    return "\n".join(lines) + "\n"


def _read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


if __name__ == "__main__":
    sys.exit(main())
