"""Is a planted slowdown found, and is nothing found where nothing is planted?

Each run is the real command, `evalharness factorial`, over three arms (control, its A/A launch, and
an arm behind a delaying proxy), with its report; server and proxies are benchmarks/decode_server.py
in a process of their own. Control and arm both go through a proxy, the control's factor being 1.

  python -m benchmarks.bench_planted_slowdown [--slowdown 1.05] [--runs 10] [--null-runs 20]

Writes docs/results/planted_slowdown.json and prints its table.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.child_server import child_server

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs" / "results" / "planted_slowdown.json"
CONCURRENCY = 4
FIGURES = ("output_tokens_per_s", "step_ms")


def one_run(folder: Path, *, factor: float, seed: int, repeats: int) -> dict[str, Any]:
    """Run the factorial once; returns what its report says of the arm behind the proxy."""
    factors = f"1.0,{factor}"
    server = [sys.executable, "-m", "benchmarks.decode_server", "--factors", factors]
    with child_server(server) as ports:
        arms = _arms(folder, [int(port) for port in ports], repeats)
        command = [sys.executable, "-m", "evalharness", "factorial", "--arms", str(arms)]
        command += ["--manifest", str(_manifest(folder)), "--out", str(folder / "run")]
        command += ["--seed", str(seed)]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
        )
    if done.returncode != 0:
        raise RuntimeError(f"the factorial ended with {done.returncode}:\n{done.stdout[-2000:]}")
    report = json.loads((folder / "run" / "report" / "report.json").read_text(encoding="utf-8"))
    rows = {(r["arm"], r["figure"]): r for r in report["speed"]["contrasts"]}
    return {
        "factor": factor,
        "seed": seed,
        "idle_share": report["idle"][0]["share"],
        **{figure: _short(rows["proxy", figure]) for figure in FIGURES},
        "aa": {figure: rows["aa", figure]["claim"] for figure in FIGURES},
    }


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("claim", "ratio", "saved_ms", "repeats", "reason")}


def _arms(folder: Path, ports: list[int], repeats: int) -> Path:
    path = folder / "arms.yaml"
    levels = ", ".join(
        f"{name}: {{endpoint: {{base_url: 'http://127.0.0.1:{port}', served_name: ticks}}}}"
        for name, port in zip(("off", "on"), ports, strict=True)
    )
    path.write_text(
        f"factors: {{proxy: {{{levels}}}}}\ncontrol: {{proxy: off}}\norder: alternating\n"
        f"plan: {{alpha: 0.025, margins: {{}}, speed_repeats: {repeats}, "
        f"gate_concurrency: [{CONCURRENCY}]}}\n",
        encoding="utf-8",
    )
    return path


def _manifest(folder: Path) -> Path:
    document = json.loads((ROOT / "manifests" / "speed-small.json").read_text(encoding="utf-8"))
    entry = document["suites"]["speed"]
    entry["options"]["waves"] = 3
    entry["sampling"]["max_tokens"] = 24
    path = folder / "manifest.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def table(rows: list[dict[str, Any]]) -> str:
    """Return the result as a Markdown table."""
    lines = [
        "| planted | runs | figure | slower found | faster found | median ratio (arm/control) | "
        "median half-width of the interval |",
        "|---|---|---|---|---|---|---|",
    ]
    for factor in sorted({row["factor"] for row in rows}, reverse=True):
        chosen = [row for row in rows if row["factor"] == factor]
        for figure in FIGURES:
            found = [row[figure] for row in chosen]
            claims = [one["claim"] for one in found]
            ratios = sorted(one["ratio"]["estimate"] for one in found)
            limits = [one["ratio"] for one in found if one["ratio"]["lower"] is not None]
            widths = sorted((one["upper"] - one["lower"]) / 2 for one in limits) or [math.inf]
            middle = len(found) // 2
            lines.append(
                f"| {100 * (factor - 1):+.1f}% | {len(chosen)} | {figure} | "
                f"{claims.count('slower')} | {claims.count('faster')} | {ratios[middle]:.4f} | "
                f"{widths[len(widths) // 2]:.4f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run everything and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slowdown", type=float, default=1.05)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--null-runs", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--limit", type=int, help="do at most so many of the runs that are missing")
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    asked = [(args.slowdown, seed) for seed in range(1, args.runs + 1)]
    asked += [(1.0, seed) for seed in range(1, args.null_runs + 1)]
    settings = {"repeats": args.repeats, "concurrency": CONCURRENCY, "cpus": os.cpu_count()}
    rows = done_before(args.out, settings)
    done = {(row["factor"], row["seed"]) for row in rows}
    for factor, seed in [one for one in asked if one not in done][: args.limit]:
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            row = one_run(Path(folder), factor=factor, seed=seed, repeats=args.repeats)
        row |= {"seconds": round(time.monotonic() - began_s, 1), "load": os.getloadavg()[0]}
        rows.append(row)
        args.out.write_text(
            json.dumps({"settings": settings, "runs": rows}, indent=1) + "\n", encoding="utf-8"
        )
        said = ", ".join(f"{figure} {row[figure]['claim']}" for figure in FIGURES)
        print(f"factor {factor:g} seed {seed}: {said}", flush=True)
    print(table(rows), end="")


def done_before(path: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs that an interrupted measurement with the same settings has done."""
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))
    if found["settings"] != settings:
        raise SystemExit(
            f"{path} holds {found['settings']}, asked now {settings}; give another --out"
        )
    rows: list[dict[str, Any]] = found["runs"]
    return rows


if __name__ == "__main__":
    main()
