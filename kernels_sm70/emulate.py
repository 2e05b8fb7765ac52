# SPDX-License-Identifier: Apache-2.0
"""Run an operation's device code on the CPU: kernel.cuh compiled by g++ with
common/host_emulation.hpp.

The oracle tests of CI use it, so the code that is checked is the code that ships. Threads and
blocks
run in a chosen order; a result that depends on the order is a race. Speed is not a goal.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from kernels_sm70.build import INCLUDE, cache_directory, source_files
from kernels_sm70.contract import PACKAGE_ROOT

FORWARD, REVERSE, SHUFFLED = 0, 1, 2
FLAGS = (
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-shared",
    "-ffp-contract=off",
    "-U_FORTIFY_SOURCE",
    "-fno-gnu-unique",  # two loaded libraries must not share their inline variables
    "-fvisibility=hidden",
    "-Wl,-Bsymbolic",
    "-Wall",
    "-Wno-unknown-pragmas",
    "-x",
    "c++",
)
STATUS = {
    1: "a barrier was not reached by all threads",
    2: "the block size is not a multiple of 32",
}


class EmulationError(RuntimeError):
    """The device code could not be compiled for, or did not finish on, the CPU."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Grid in blocks, dynamic shared memory in bytes, the order of threads, blocks per cluster."""

    grid: tuple[int, int, int]
    dynamic_shared_bytes: int = 0
    order: int = FORWARD
    cluster: int = 1


@cache
def library(operation: str, *, volta: bool = False, source_text: str | None = None) -> ctypes.CDLL:
    """Compile and load an operation for the CPU.

    `volta` selects the m8n8k4 atom. `source_text` replaces kernel.cuh, for mutation tests.
    """
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise EmulationError("no g++ on PATH; install one, or set CXX to a C++17 compiler")
    path = PACKAGE_ROOT / operation / "kernel.cuh"
    text = path.read_text() if source_text is None else source_text
    flags = (*FLAGS, f"-I{path.parent}", *(["-DKS_ARCH=700"] if volta else []))
    if source_text is not None:
        flags = (*flags, "-O1")  # used once: compiling it weighs more than running it
    digest = hashlib.sha256(repr(flags).encode() + text.encode())
    for file in (*source_files(operation)[1:], PACKAGE_ROOT / "common" / "host_emulation.hpp"):
        digest.update(file.read_bytes())
    target = cache_directory() / f"{operation}.emulated.{digest.hexdigest()[:16]}.so"
    if not target.exists():
        _compile(compiler, text, flags=flags, target=target)
    return ctypes.CDLL(str(target))


def _compile(compiler: str, text: str, *, flags: tuple[str, ...], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(f".{os.getpid()}.so")
    # Given through stdin so that a mutated source needs no file; includes resolve by -I.
    done = subprocess.run(
        [compiler, *flags, "-", "-o", str(temporary)],
        input=text,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise EmulationError(f"{target.name}: {compiler} failed:\n{done.stderr}")
    temporary.replace(target)


def run(lib: ctypes.CDLL, entry: str, args: ctypes.Structure, *, launch: Launch) -> None:
    """Run one kernel entry to completion with the pointers in `args` (CPU memory).

    Raises:
        EmulationError: when threads wait for each other for ever, or `args` has the wrong size.
    """
    expected = getattr(lib, f"{entry}_args_bytes")()
    if expected != ctypes.sizeof(args):
        raise EmulationError(
            f"{entry}: its Args has {expected} bytes, the Python mirror "
            f"{type(args).__name__} {ctypes.sizeof(args)}; make the fields agree"
        )
    grid = (ctypes.c_uint * 3)(*launch.grid)
    status = getattr(lib, f"{entry}_emulated")(
        ctypes.byref(args),
        grid,
        ctypes.c_uint(launch.dynamic_shared_bytes),
        ctypes.c_uint(launch.cluster),
        ctypes.c_int(launch.order),
    )
    if status:
        raise EmulationError(f"{entry}: {STATUS.get(status, status)}")


def mutated(operation: str, old: str, new: str) -> str:
    """The operation's source as one text, its own includes inlined, with every `old` replaced by
    `new`.

    For mutation tests: pass it as `source_text`. Raises EmulationError if `old` does not occur, so
    that a mutation cannot quietly stop mutating.
    """
    folder = PACKAGE_ROOT / operation

    def inline(text: str) -> str:
        def content(match: re.Match[str]) -> str:
            path = folder / match.group(1)
            if match.group(1).startswith("..") or not path.exists():
                return match.group(0)
            return inline(path.read_text().replace("#pragma once", ""))

        return INCLUDE.sub(content, text)

    text = inline((folder / "kernel.cuh").read_text())
    if old not in text:
        raise EmulationError(f"{operation}: the mutation's text is no longer there: {old!r}")
    return text.replace(old, new)


class Arena:
    """CPU tensors with guard bytes around each: a write outside one is found, and harmless."""

    GUARD_BYTES = 1 << 20
    FILL = 0x5A

    def __init__(self) -> None:
        self._buffers: list[tuple[torch.Tensor, int]] = []

    def empty(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """A contiguous tensor, poisoned: NaN in floating types, -1 in integer ones."""
        size = math.prod(shape) * dtype.itemsize
        buffer = torch.full((size + 2 * self.GUARD_BYTES,), self.FILL, dtype=torch.uint8)
        middle = buffer[self.GUARD_BYTES : self.GUARD_BYTES + size]
        middle.fill_(0xFF)  # a NaN in every floating type, -1 in every integer one
        self._buffers.append((buffer, size))
        return middle.view(dtype).view(shape)

    def check(self) -> None:
        """Raise EmulationError if a byte outside the tensors was written."""
        for index, (buffer, size) in enumerate(self._buffers):
            guards = torch.cat((buffer[: self.GUARD_BYTES], buffer[self.GUARD_BYTES + size :]))
            changed = int((guards != self.FILL).sum())
            if changed:
                raise EmulationError(f"tensor {index}: {changed} bytes outside it were written")
