# SPDX-License-Identifier: Apache-2.0
"""Compile an operation's kernel.cuh to a cubin, with a stamp that says from what and by what.

`python -m kernels_sm70.build --arch sm_70 --out DIR` builds every operation without a GPU. The same
files build with nvcc for owners of a V100 and a CUDA 12.x toolkit:
`nvcc -std=c++17 -O3 -arch=sm_70 -cubin -x cu kernels_sm70/<op>/kernel.cuh`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from kernels_sm70.contract import PACKAGE_ROOT
from kernels_sm70.nvrtc import BuildError, compile_cubin, find_compiler
from kernels_sm70.registry import OPERATIONS

CACHE_ENV = "KERNELS_SM70_CACHE"
BASE_OPTIONS = ("--std=c++17", "--restrict")
INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a cubin was made from: digests are SHA-256 of the sources and of the cubin."""

    operation: str
    arch: str
    defines: tuple[str, ...]
    compiler: str
    source_digest: str
    cubin_digest: str
    log: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled operation."""

    stamp: Stamp
    cubin: bytes


def source_files(operation: str) -> tuple[Path, ...]:
    """Every file the operation's translation unit includes, itself first, in order of discovery."""
    pending, seen = [PACKAGE_ROOT / operation / "kernel.cuh"], dict[Path, None]()
    while pending:
        path = pending.pop(0).resolve()
        if path in seen or path.name == "host_emulation.hpp":
            continue
        seen[path] = None
        pending += [path.parent / name for name in INCLUDE.findall(path.read_text())]
    return tuple(seen)


def source_digest(operation: str, defines: tuple[str, ...] = ()) -> str:
    """SHA-256 over the operation's sources, their names, the defines and the options."""
    digest = hashlib.sha256(repr((BASE_OPTIONS, defines)).encode())
    for path in source_files(operation):
        digest.update(
            path.relative_to(PACKAGE_ROOT).as_posix().encode() + b"\0" + path.read_bytes()
        )
    return digest.hexdigest()


def cache_directory() -> Path:
    """Where cubins are kept between processes."""
    named = os.environ.get(CACHE_ENV)
    return Path(named) if named else Path.home() / ".cache" / "kernels_sm70"


def build(
    operation: str, arch: str, *, defines: tuple[str, ...] = (), cache: Path | None = None
) -> Artifact:
    """Return the operation's cubin for `arch`, from the cache when the sources are unchanged.

    Raises:
        BuildError: if the sources do not compile or no compiler for `arch` is installed.
    """
    if operation not in OPERATIONS:
        raise BuildError(f"{operation}: not an operation; known: {', '.join(OPERATIONS)}")
    compiler = find_compiler(arch)
    wanted = source_digest(operation, defines)
    folder = cache or cache_directory()
    base = folder / f"{operation}.{arch}.{compiler.version}.{wanted[:16]}"
    cached = _read_cache(base, wanted)
    if cached is not None:
        return cached
    path = PACKAGE_ROOT / operation / "kernel.cuh"
    options = (
        *BASE_OPTIONS,
        f"--gpu-architecture={arch}",
        f"--include-path={path.parent}",
        *(f"--define-macro={name}" for name in defines),
    )
    cubin, log = compile_cubin(
        compiler, path.read_text(), name=f"{operation}/kernel.cuh", options=options
    )
    stamp = Stamp(
        operation,
        arch,
        defines,
        f"NVRTC {compiler.version}",
        wanted,
        hashlib.sha256(cubin).hexdigest(),
        log,
    )
    _write_cache(base, Artifact(stamp, cubin))
    return Artifact(stamp, cubin)


def _read_cache(base: Path, wanted: str) -> Artifact | None:
    record, binary = base.with_name(base.name + ".json"), base.with_name(base.name + ".cubin")
    if not (record.exists() and binary.exists()):
        return None
    try:
        fields = json.loads(record.read_bytes())
        stamp = Stamp(**{**fields, "defines": tuple(fields["defines"])})
        cubin = binary.read_bytes()
    except (OSError, ValueError, TypeError, KeyError):
        return None  # a record that cannot be read vouches for nothing; compiled again
    intact = (
        stamp.source_digest == wanted and hashlib.sha256(cubin).hexdigest() == stamp.cubin_digest
    )
    return Artifact(stamp, cubin) if intact else None


def _write_cache(base: Path, artifact: Artifact) -> None:
    base.parent.mkdir(parents=True, exist_ok=True)
    # Renames are atomic: a second process never reads half a file.
    for suffix, data in (
        (".cubin", artifact.cubin),
        (".json", json.dumps(asdict(artifact.stamp), indent=1).encode()),
    ):
        temporary = base.with_name(f"{base.name}{suffix}.{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(base.with_name(base.name + suffix))


def main(argv: list[str] | None = None) -> int:
    """Build every operation for the given architectures and print the stamps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arch", action="append", choices=("sm_70", "sm_75", "sm_80", "sm_90"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    for arch in options.arch or ["sm_70", "sm_90"]:
        for operation in OPERATIONS:
            stamp = build(operation, arch, cache=options.out).stamp
            print(
                f"{operation:24s} {arch} {stamp.compiler} source {stamp.source_digest[:12]} "
                f"cubin {stamp.cubin_digest[:12]}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
