# SPDX-License-Identifier: Apache-2.0
"""Parts of the GPU suite in processes of their own: an illegal access kills only one.

A child does one kind of work for some operations and writes a JSON document; the parent reads
it, or records how the child died.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernels_sm70.bench import harness
from kernels_sm70.gpu_checks import Report

BENCH = "BENCH"


def _part(operation: str, part: str) -> ModuleType | None:
    """kernels_sm70.<operation>.<part>, or None where the operation has none."""
    name = f"kernels_sm70.{operation}.{part}"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def _failure(operation: str, check: str) -> dict[str, str]:
    words = traceback.format_exc(limit=8)
    print(f"{operation} {check}: FAILED\n{words}", flush=True)
    return {"operation": operation, "check": check, "traceback": words}


def run_checks(device: torch.device, operation: str, attribute: str) -> dict[str, Any]:
    """Run every check of `attribute` ("CHECKS"); a failure is recorded and the next one runs."""
    report, failures = Report(device), []
    for check in getattr(_part(operation, "gpu"), attribute, ()):
        began = time.monotonic()
        try:
            check(report)
            torch.cuda.synchronize()
            print(
                f"{operation} {check.__name__}: ok ({time.monotonic() - began:.1f} s)", flush=True
            )
        except Exception:  # noqa: BLE001  recorded; the suite fails at the end
            failures.append(_failure(operation, check.__name__))
    return {"checks": report.rows, "failures": failures}


def run_bench(device: torch.device, operation: str, bytes_per_s: float) -> dict[str, Any]:
    """Time every case of one operation; a case that raises is recorded and the next one runs."""
    rows: list[harness.Row] = []
    failures = []
    for case in getattr(_part(operation, "bench"), "CASES", ()):
        began = time.monotonic()
        try:
            rows += harness.run_case(case, device, bytes_per_s=bytes_per_s)
        except Exception:  # noqa: BLE001  recorded; the other cases still run
            failures.append(_failure(operation, f"bench {case.label}"))
        print(f"{operation} {case.label}: {time.monotonic() - began:.1f} s", flush=True)
    return {"bench": [row.as_dict() for row in rows], "failures": failures}


def child(kind: str, operations: tuple[str, ...], out: Path, bytes_per_s: float) -> int:
    """The body of a child process: do the work, keep the document current, exit 1 on a failure."""
    device = torch.device("cuda", 0)
    document: dict[str, list[Any]] = {"checks": [], "failures": [], "bench": []}
    for operation in operations:
        if kind == BENCH:
            done = run_bench(device, operation, bytes_per_s)
        else:
            done = run_checks(device, operation, kind)
        for key, values in done.items():
            document[key] += values
        out.write_text(json.dumps(document))
    print(
        f"{len(document['checks'])} checks passed, {len(document['failures'])} failed", flush=True
    )
    return 1 if document["failures"] else 0


@dataclass(slots=True)
class Child:
    """A running child: where its document and its output go."""

    name: str
    process: subprocess.Popen[bytes]
    document: Path
    log: Path
    must_say: str = ""


def start(
    name: str,
    kind: str,
    operations: tuple[str, ...],
    *,
    out: Path,
    prefix: tuple[str, ...] = (),
    extra_env: dict[str, str] | None = None,
    bytes_per_s: float = 0.0,
    must_say: str = "",
) -> Child:
    """Start one child. `prefix` wraps it (compute-sanitizer); its output has to hold `must_say`."""
    document, log = out / f"{name}.child.json", out / f"{name}.log"
    command = [*prefix, sys.executable, "-m", "kernels_sm70.gpu_suite", "--child", kind]
    command += ["--only", ",".join(operations), "--out", str(document)]
    command += ["--bytes-per-s", repr(bytes_per_s)]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=subprocess.STDOUT, env=os.environ | (extra_env or {})
        )
    return Child(name, process, document, log, must_say)


def finish(child: Child, *, timeout_s: float) -> dict[str, Any]:
    """Wait for a child and return its document; a dead or late child becomes a failure in it."""
    try:
        code: int | str = child.process.wait(timeout=max(1.0, timeout_s))
    except subprocess.TimeoutExpired:
        child.process.kill()
        child.process.wait()
        code = f"cut off after {timeout_s:.0f} s"
    words = child.log.read_text(errors="replace")
    document: dict[str, Any] = {"checks": [], "failures": [], "bench": []}
    if child.document.exists():
        document = json.loads(child.document.read_text())
        child.document.unlink()
    # A sanitizer that never attached prints no summary: that is not a clean run.
    silent = child.must_say not in words
    if (code != 0 and not document["failures"]) or silent:
        lost = "said nothing of its summary" if silent and code == 0 else f"exit {code}"
        document["failures"].append(
            {"operation": child.name, "check": lost, "traceback": words[-3000:]}
        )
    document["exit"], document["tail"] = code, words[-1500:]
    return document
