# SPDX-License-Identifier: Apache-2.0
"""Audit the compiled kernels against a committed ledger, without a GPU.

`python -m kernels_sm70.audit --check` compiles every kernel for sm_70 and sm_90, reads the cubins
and
fails when a kernel breaks a rule (registers, spills, local loads, shared memory, no matrix
instruction where there must be one) or differs from ledger.json. `--update` rewrites the ledger.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernels_sm70.build import build
from kernels_sm70.contract import PACKAGE_ROOT, KernelSpec
from kernels_sm70.cubin import KernelImage, read_cubin
from kernels_sm70.registry import OPERATIONS, kernels_of

LEDGER = PACKAGE_ROOT / "ledger.json"
ARCHES = ("sm_70", "sm_90")
REGISTERS_MAX = 255


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What one multiprocessor holds; sizes in bytes, registers allocated per warp in units."""

    registers: int
    register_unit: int
    warps: int
    ctas: int
    shared_bytes: int
    shared_per_cta_bytes: int


LIMITS = {
    "sm_70": SmLimits(65536, 256, 64, 32, 96 * 1024, 96 * 1024),
    "sm_90": SmLimits(65536, 256, 64, 32, 228 * 1024, 227 * 1024),
}


def ctas_per_sm(image: KernelImage, spec: KernelSpec, arch: str) -> int:
    """Static ceiling of resident blocks on one multiprocessor: no occupancy was measured."""
    limits = LIMITS[arch]
    warps = -(-spec.threads // 32)
    unit = limits.register_unit
    per_warp = -(-image.registers * 32 // unit) * unit
    shared = image.static_shared_bytes + spec.dynamic_shared(arch)
    by_registers = limits.registers // (per_warp * warps)
    by_shared = limits.shared_bytes // shared if shared else limits.ctas
    return min(by_registers, by_shared, limits.warps // warps, limits.ctas)


def entry_facts(image: KernelImage, spec: KernelSpec, arch: str) -> dict[str, object]:
    """The ledger's line for one kernel on one architecture."""
    return {
        "registers": image.registers,
        "static_shared_bytes": image.static_shared_bytes,
        "dynamic_shared_bytes": spec.dynamic_shared(arch),
        "frame_bytes": image.frame_bytes,
        "local_loads": image.local_loads,
        "local_stores": image.local_stores,
        "hmma": image.hmma,
        "global_loads_16": image.global_loads_16,
        "ctas_per_sm": ctas_per_sm(image, spec, arch),
        "floor_bytes": dict(spec.floor_bytes),
    }


def broken_rules(image: KernelImage, spec: KernelSpec, arch: str) -> list[str]:
    """Rules that hold for every kernel on every architecture."""
    where, limits = f"{spec.entry} {arch}", LIMITS[arch]
    shared = image.static_shared_bytes + spec.dynamic_shared(arch)
    found = []
    if image.registers > REGISTERS_MAX:
        found.append(f"{where}: {image.registers} registers, at most {REGISTERS_MAX}")
    if image.frame_bytes or image.local_loads or image.local_stores:
        found.append(
            f"{where}: {image.frame_bytes} B of stack, {image.local_loads} local loads, "
            f"{image.local_stores} local stores; a spill or an indexed register array"
        )
    if image.static_shared_bytes > 48 * 1024 or shared > limits.shared_per_cta_bytes:
        found.append(f"{where}: {shared} B of shared memory do not fit a block")
    if spec.matrix and not image.hmma:
        found.append(f"{where}: no matrix instruction in a kernel declared to use one")
    if ctas_per_sm(image, spec, arch) < 1:
        found.append(f"{where}: not one block fits a multiprocessor")
    if not spec.floor_bytes:
        found.append(f"{where}: no floor bytes declared")
    return found


def audit(cache: Path | None = None) -> tuple[dict[str, dict[str, object]], list[str]]:
    """Compile and read everything: ({arch: {entry: facts}}, broken rules)."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:  # NVRTC runs without the GIL
        jobs = [pool.submit(build, op, arch, cache=cache) for op in OPERATIONS for arch in ARCHES]
        for job in jobs:
            job.result()
    ledger: dict[str, dict[str, object]] = {}
    problems: list[str] = []
    for arch in ARCHES:
        lines: dict[str, object] = {}
        for operation in OPERATIONS:
            images = read_cubin(build(operation, arch, cache=cache).cubin)
            specs = {spec.entry: spec for spec in kernels_of(operation) if arch in spec.arches}
            for entry in sorted(specs.keys() ^ images.keys()):
                side = (
                    "declared but not compiled" if entry in specs else "compiled but not declared"
                )
                problems.append(f"{entry} {arch}: {side}; make KERNELS and kernel.cuh agree")
            for entry in sorted(specs.keys() & images.keys()):
                lines[entry] = entry_facts(images[entry], specs[entry], arch)
                problems += broken_rules(images[entry], specs[entry], arch)
        ledger[arch] = lines
    return ledger, problems


def differences(
    found: dict[str, dict[str, object]], committed: dict[str, dict[str, object]]
) -> list[str]:
    """Where the compiled kernels differ from the committed ledger."""
    out = []
    for arch in sorted(found.keys() | committed.keys()):
        have, want = found.get(arch, {}), committed.get(arch, {})
        for entry in sorted(have.keys() | want.keys()):
            if have.get(entry) != want.get(entry):
                out.append(f"{entry} {arch}: ledger {want.get(entry)}, compiled {have.get(entry)}")
    return out


def table(ledger: dict[str, dict[str, object]]) -> str:
    """The ledger as Markdown."""
    heads = ("registers", "static_shared_bytes", "dynamic_shared_bytes", "hmma", "ctas_per_sm")
    lines = [
        "| kernel | arch | registers | static shared B | dynamic shared B | HMMA | CTAs/SM "
        "| floor bytes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arch, entries in ledger.items():
        for entry, facts in entries.items():
            if isinstance(facts, dict):
                cells = " | ".join(str(facts[head]) for head in heads)
                floors = ", ".join(f"{case} {n}" for case, n in facts["floor_bytes"].items())
                lines.append(f"| {entry} | {arch} | {cells} | {floors} |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Command line: --check (exit 1 on any problem), --update, or print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true")
    mode.add_argument("--update", action="store_true")
    options = parser.parse_args(argv)
    ledger, problems = audit()
    if options.update:
        LEDGER.write_text(json.dumps(ledger, indent=1, sort_keys=True) + "\n")
    elif options.check:
        committed = json.loads(LEDGER.read_text()) if LEDGER.exists() else {}
        stale = differences(ledger, committed)
        problems += stale
        if stale:
            problems.append(
                "if the change is meant: python -m kernels_sm70.audit --update; commit the ledger"
            )
    print(table(ledger))
    for problem in problems:
        print(f"audit: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
