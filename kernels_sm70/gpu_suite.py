# SPDX-License-Identifier: Apache-2.0
"""Everything that needs a GPU: build, checks against the oracles, sanitizer, Volta's atom, bench.

`python3 -m kernels_sm70.gpu_suite --out DIR` writes DIR/results.json and DIR/results.md, and exits
1 when a check fails. A missed speed target is reported, not failed. Results are written after
every part, so a run that is cut off keeps what it had.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kernels_sm70 import gpu_children
from kernels_sm70.bench import harness
from kernels_sm70.build import build, source_digest
from kernels_sm70.registry import OPERATIONS
from kernels_sm70.runtime import DEFINES_ENV, architecture

VOLTA_DEFINE = "KS_FORCE_VOLTA_ATOM"
PARTS = ("checks", "volta", "sanitizer", "bench")
UNTIMED_TIMEOUT_S = 170.0
BENCH_TIMEOUT_S = 90.0
SANITIZERS = ("memcheck", "racecheck")


def _said(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"unknown ({done.stderr.strip()[:80]})"


def prebuild(operations: tuple[str, ...], arch: str, parts: frozenset[str]) -> None:
    """Compile side by side what the children will load; the compiler runs without the GIL."""
    wanted: list[tuple[str, tuple[str, ...]]] = [(operation, ()) for operation in operations]
    if "volta" in parts:
        wanted += [(operation, (VOLTA_DEFINE,)) for operation in operations]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for done in [pool.submit(build, op, arch, defines=defines) for op, defines in wanted]:
            done.result()


def facts(device: torch.device) -> dict[str, object]:
    """Date, card, driver, versions and what was built: the head of the results file."""
    card = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    arch = architecture(device)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "card": torch.cuda.get_device_name(device),
        "driver": _said(card) if shutil.which("nvidia-smi") else "unknown (no nvidia-smi)",
        "torch": torch.__version__,
        "commit": os.environ.get("KERNELS_SM70_COMMIT") or _said(["git", "rev-parse", "HEAD"]),
        "arch": arch,
        "compilers": sorted({build(op, arch).stamp.compiler for op in OPERATIONS}),
        "sources": {op: source_digest(op) for op in OPERATIONS},
    }


@cache
def sanitizer_filter() -> str:
    """The option that limits compute-sanitizer to our kernels; its name varies by release."""
    for option in ("--kernel-name kns=ks_", "--kernel-regex kns=ks_", "--filter kns=ks_"):
        command = ["compute-sanitizer", *option.split(), shutil.which("true") or "true"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        words = (done.stdout + done.stderr).lower()
        if not any(word in words for word in ("unrecogni", "invalid", "unknown", "usage:")):
            return f" {option}"
    return ""  # every kernel is instrumented: slower, and torch's own are checked too


def untimed(out: Path, operations: tuple[str, ...], parts: frozenset[str]) -> dict[str, Any]:
    """Checks, Volta's atom and the sanitizers, all side by side: nothing here is timed."""
    children = []
    if "checks" in parts:
        children += [gpu_children.start(op, "CHECKS", (op,), out=out) for op in operations]
    if "volta" in parts:
        forced = {DEFINES_ENV: VOLTA_DEFINE}
        children.append(
            gpu_children.start("volta_atom", "VOLTA_CHECKS", operations, out=out, extra_env=forced)
        )
    results: dict[str, Any] = {"checks": [], "failures": [], "children": {}}
    if "sanitizer" in parts:
        for tool in SANITIZERS:
            if not shutil.which("compute-sanitizer"):
                results["children"][tool] = {"exit": None, "tail": "no compute-sanitizer on PATH"}
                continue
            prefix = f"compute-sanitizer --tool {tool} --error-exitcode 9 --print-limit 5"
            if tool == "memcheck":
                # Bindings probe the driver for functions it may lack; our own calls check every
                # status themselves, so only accesses are left to the tool.
                prefix += " --report-api-errors no"
            prefix += sanitizer_filter()
            children.append(
                gpu_children.start(
                    tool,
                    "SANITIZER_CHECKS",
                    operations,
                    out=out,
                    prefix=tuple(prefix.split()),
                    must_say="SUMMARY",
                )
            )
    deadline = time.monotonic() + UNTIMED_TIMEOUT_S
    for one in children:
        document = gpu_children.finish(one, timeout_s=deadline - time.monotonic())
        results["failures"] += [fault | {"process": one.name} for fault in document["failures"]]
        if one.name in operations:
            results["checks"] += document["checks"]
        else:
            results["children"][one.name] = {
                "exit": document["exit"],
                "failed": len(document["failures"]),
                "checks": document["checks"],
                "tail": document["tail"],
            }
        print(
            f"{one.name}: exit {document['exit']}, {len(document['failures'])} failed", flush=True
        )
    return results


def timed(out: Path, operations: tuple[str, ...], device: torch.device) -> dict[str, Any]:
    """The bench, one operation after another, each in a process of its own."""
    speed = harness.measure_copy_bytes_per_s(device)
    torch.cuda.empty_cache()
    results: dict[str, Any] = {"copy_bytes_per_s": speed, "bench": [], "failures": []}
    for operation in operations:
        one = gpu_children.start(
            f"bench_{operation}", gpu_children.BENCH, (operation,), out=out, bytes_per_s=speed
        )
        document = gpu_children.finish(one, timeout_s=BENCH_TIMEOUT_S)
        results["bench"] += document["bench"]
        results["failures"] += document["failures"]
    return results


def write(out: Path, results: dict[str, Any]) -> None:
    """Write results.json and results.md."""
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    lines = ["# Kernels on a GPU", ""]
    lines += [f"- {key}: {value}" for key, value in results["facts"].items() if key != "sources"]
    lines += ["", "## Checks", ""]
    lines += [f"- {row['operation']}: {row['check']}: passed" for row in results["checks"]]
    lines += [f"- {row['operation']}: {row['check']}: FAILED" for row in results["failures"]]
    for name, child in results["children"].items():
        state = "not run" if child["exit"] is None else f"exit {child['exit']}"
        lines.append(f"- {name}: {state}")
    if results["bench"]:
        speed = results["copy_bytes_per_s"]
        heading = f"## Bench (floors at the measured copy speed of {speed / 1e12:.2f} TB/s)"
        lines += ["", heading, "", harness.table(rows_of(results))]
    (out / "results.md").write_text("\n".join(lines) + "\n")


def keep_logs(scratch: Path, out: Path) -> None:
    """One log of all children beside the results: their last 6000 characters each."""
    parts = [
        f"==== {log.name}\n{log.read_text(errors='replace')[-6000:]}"
        for log in sorted(scratch.glob("*.log"))
    ]
    (out / "children.log").write_text("\n".join(parts))


def rows_of(results: dict[str, Any]) -> list[harness.Row]:
    """The bench rows of a results document."""
    return [harness.Row(**row) for row in results["bench"]]


def suite(out: Path, operations: tuple[str, ...], parts: frozenset[str]) -> int:
    """Run the parts, write the results after each, print the table last."""
    device, began = torch.device("cuda", 0), time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="kernels_sm70_"))
    prebuild(operations, architecture(device), parts)
    results: dict[str, Any] = {"facts": facts(device), "bench": []}
    built_s = time.monotonic() - began
    print(json.dumps(results["facts"], indent=1), f"\nbuilt in {built_s:.1f} s", flush=True)
    results |= untimed(scratch, operations, parts)
    keep_logs(scratch, out)
    write(out, results)
    if "bench" in parts:
        done = timed(scratch, operations, device)
        results["failures"] += done.pop("failures")
        results |= done
        write(out, results)
        keep_logs(scratch, out)
    for failure in results["failures"]:
        print(f"{failure['operation']} {failure['check']}:\n{failure['traceback'][-2500:]}")
    print(harness.table(rows_of(results)))
    seconds, passed = time.monotonic() - began, len(results["checks"])
    print(f"{passed} checks passed, {len(results['failures'])} failed; {seconds:.0f} s")
    return 1 if results["failures"] else 0


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results/kernels"))
    parser.add_argument("--only", help="comma-separated operations")
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated; default all")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--bytes-per-s", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    operations = tuple(options.only.split(",")) if options.only else OPERATIONS
    unknown = set(operations) - set(OPERATIONS)
    parts = frozenset(options.parts.split(","))
    if unknown or parts - set(PARTS):
        parser.error(f"unknown: {sorted(unknown | parts - set(PARTS))}")
    if not torch.cuda.is_available():
        print("gpu_suite: no CUDA device; `make kernels` audits without one", file=sys.stderr)
        return 2
    torch.cuda.set_device(0)
    if options.child:
        return gpu_children.child(options.child, operations, options.out, options.bytes_per_s)
    return suite(options.out, operations, parts)


if __name__ == "__main__":
    sys.exit(main())
