# SPDX-License-Identifier: Apache-2.0
"""Everything that needs a GPU: build, checks against the oracles, sanitizer, Volta's atom, bench.

`python3 -m kernels_sm70.gpu_suite --out DIR` writes DIR/results.json and DIR/results.md, and exits
1
when a check fails. A missed speed target is reported, not failed. Results are written after every
part, so a run that is cut off keeps what it had.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernels_sm70.bench import harness
from kernels_sm70.build import build, source_digest
from kernels_sm70.gpu_checks import Report
from kernels_sm70.registry import OPERATIONS
from kernels_sm70.runtime import DEFINES_ENV, architecture

CHILD_TIMEOUT_S = 150
SANITIZERS = ("memcheck", "racecheck")


def _part(operation: str, part: str) -> ModuleType | None:
    """kernels_sm70.<operation>.<part>, or None where the operation has none."""
    name = f"kernels_sm70.{operation}.{part}"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def _said(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"unknown ({done.stderr.strip()[:80]})"


def facts(device: torch.device) -> dict[str, object]:
    """Date, card, driver, versions and what was built: the head of the results file."""
    card = [
        "nvidia-smi",
        "--query-gpu=driver_version",
        "--format=csv,noheader",
        f"--id={device.index}",
    ]
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


def run_checks(
    device: torch.device, operations: tuple[str, ...], attribute: str
) -> tuple[Report, list[dict[str, str]]]:
    """Run every check of `attribute` ("CHECKS"); a failure is recorded and the next one runs."""
    report, failures = Report(device), []
    for operation in operations:
        module = _part(operation, "gpu")
        for check in getattr(module, attribute, ()):
            began = time.monotonic()
            try:
                check(report)
                torch.cuda.synchronize()
                verdict = "ok"
            except Exception:  # noqa: BLE001  recorded; the suite fails at the end
                verdict = "FAILED"
                failures.append(
                    {
                        "operation": operation,
                        "check": check.__name__,
                        "traceback": traceback.format_exc(limit=6),
                    }
                )
            print(
                f"check {operation}.{check.__name__}: {verdict} ({time.monotonic() - began:.1f} s)",
                flush=True,
            )
    return report, failures


def run_bench(
    device: torch.device, operations: tuple[str, ...]
) -> tuple[list[harness.Row], list[dict[str, str]], float]:
    """Time every case; a case that raises is recorded and the next one runs."""
    bytes_per_s = harness.measure_copy_bytes_per_s(device)
    rows: list[harness.Row] = []
    failures = []
    for operation in operations:
        module = _part(operation, "bench")
        for case in getattr(module, "CASES", ()):
            began = time.monotonic()
            try:
                rows += harness.run_case(case, device, bytes_per_s=bytes_per_s)
            except Exception:  # noqa: BLE001  recorded; the other cases still run
                failures.append(
                    {
                        "operation": operation,
                        "check": f"bench {case.label}",
                        "traceback": traceback.format_exc(limit=6),
                    }
                )
                print(f"bench {operation} {case.label}: FAILED", flush=True)
            torch.cuda.empty_cache()
            print(f"bench {operation} {case.label}: {time.monotonic() - began:.1f} s", flush=True)
    return rows, failures, bytes_per_s


def _child_command(attribute: str, operations: tuple[str, ...]) -> list[str]:
    return [
        sys.executable,
        "-m",
        "kernels_sm70.gpu_suite",
        "--child",
        attribute,
        "--only",
        ",".join(operations),
    ]


def start_children(operations: tuple[str, ...]) -> dict[str, subprocess.Popen[str]]:
    """compute-sanitizer's tools and the run with Volta's atom, side by side after the timing."""
    children = {}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    defines = os.environ | {DEFINES_ENV: "KS_FORCE_VOLTA_ATOM"}
    children["volta atom"] = subprocess.Popen(
        _child_command("VOLTA_CHECKS", operations), env=defines, **pipes
    )
    if shutil.which("compute-sanitizer"):
        for tool in SANITIZERS:
            command = [
                "compute-sanitizer",
                "--tool",
                tool,
                "--error-exitcode",
                "9",
                "--print-limit",
                "5",
                "--kernel-name",
                "kernel_substring=ks_",
            ]
            children[tool] = subprocess.Popen(
                [*command, *_child_command("SANITIZER_CHECKS", operations)], **pipes
            )
    return children


def finish_children(children: dict[str, subprocess.Popen[str]]) -> dict[str, dict[str, object]]:
    """Wait for each child, at most CHILD_TIMEOUT_S in all; a child cut off counts as failed."""
    deadline = time.monotonic() + CHILD_TIMEOUT_S
    results: dict[str, dict[str, object]] = {}
    for name, child in children.items():
        try:
            output, _ = child.communicate(timeout=max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            output, _ = child.communicate()
            output += f"\ncut off after {CHILD_TIMEOUT_S} s"
        # A sanitizer that never attached prints no summary: that is not a clean run.
        attached = name == "volta atom" or "SUMMARY" in output
        results[name] = {
            "ok": child.returncode == 0 and attached,
            "exit": child.returncode,
            "tail": output[-1500:],
        }
        print(f"{name}: {'ok' if results[name]['ok'] else 'FAILED'}\n{output[-600:]}", flush=True)
    for tool in SANITIZERS:
        if tool not in children:
            results[tool] = {"ok": None, "tail": "not run: no compute-sanitizer on PATH"}
    return results


def write(out: Path, results: dict[str, Any], rows: list[harness.Row]) -> None:
    """Write results.json and results.md."""
    out.mkdir(parents=True, exist_ok=True)
    document = results | {"bench": [row.as_dict() for row in rows]}
    (out / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    lines = ["# Kernels on a GPU", ""]
    lines += [f"- {key}: {value}" for key, value in results["facts"].items() if key != "sources"]
    lines += ["", "## Checks", ""]
    lines += [f"- {row['operation']}: {row['check']}: passed" for row in results["checks"]]
    lines += [f"- {row['operation']}: {row['check']}: FAILED" for row in results["failures"]]
    lines += [f"- {name}: {child['ok']}" for name, child in results.get("children", {}).items()]
    if rows:
        speed = results["copy_bytes_per_s"]
        lines += [
            "",
            f"## Bench (floors at the measured copy speed of {speed / 1e12:.2f} TB/s)",
            "",
            harness.table(rows),
        ]
    (out / "results.md").write_text("\n".join(lines) + "\n")


def child(attribute: str, operations: tuple[str, ...]) -> int:
    """One set of checks in a process of its own; exit 1 on a failure."""
    report, failures = run_checks(torch.device("cuda", 0), operations, attribute)
    for failure in failures:
        print(failure["traceback"])
    print(f"{len(report.rows)} checks passed, {len(failures)} failed")
    return 1 if failures else 0


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results/kernels"))
    parser.add_argument("--only", help="comma-separated operations")
    parser.add_argument("--skip", default="", help="comma-separated: checks, bench, children")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    operations = tuple(options.only.split(",")) if options.only else OPERATIONS
    if not torch.cuda.is_available():
        print(
            "kernels_sm70.gpu_suite: no CUDA device; `make kernels` audits without one",
            file=sys.stderr,
        )
        return 2
    torch.cuda.set_device(0)
    if options.child:
        return child(options.child, operations)
    return suite(options.out, operations, frozenset(options.skip.split(",")))


def suite(out: Path, operations: tuple[str, ...], skip: frozenset[str]) -> int:
    """Run all parts not skipped, write the results after each, print the table last."""
    device, began = torch.device("cuda", 0), time.monotonic()
    results: dict[str, Any] = {"facts": facts(device), "checks": [], "failures": []}
    print(
        json.dumps(results["facts"], indent=1),
        f"\nbuilt in {time.monotonic() - began:.1f} s",
        flush=True,
    )
    rows: list[harness.Row] = []
    if "checks" not in skip:
        report, results["failures"] = run_checks(device, operations, "CHECKS")
        results["checks"] = report.rows
        write(out, results, rows)
    if "bench" not in skip:
        rows, failed, results["copy_bytes_per_s"] = run_bench(device, operations)
        results["failures"] += failed
        write(out, results, rows)
    if "children" not in skip:
        results["children"] = finish_children(start_children(operations))
        write(out, results, rows)
    for failure in results["failures"]:
        print(f"{failure['operation']} {failure['check']}:\n{failure['traceback']}")
    print(harness.table(rows))
    failed_children = [
        name for name, one in results.get("children", {}).items() if one["ok"] is False
    ]
    print(
        f"{len(results['checks'])} checks passed, {len(results['failures'])} failed; "
        f"children failed: {failed_children or 'none'}; {time.monotonic() - began:.0f} s"
    )
    return 1 if results["failures"] or failed_children else 0


if __name__ == "__main__":
    sys.exit(main())
