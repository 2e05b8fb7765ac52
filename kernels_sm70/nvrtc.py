# SPDX-License-Identifier: Apache-2.0
"""NVRTC by its documented C interface, from a toolkit named by path.

Why not cuda-core's Program: it compiles with whichever NVRTC the process loads first. sm_70 was
removed in CUDA 13, so a build must be able to hold a 12.x NVRTC for Volta beside a 13.x one for the
GPU at hand. Loading and launching do go through NVIDIA's cuda-bindings (see runtime.py).
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

LIBRARY_ENV = "KERNELS_SM70_NVRTC"
REMEDY = (
    "install the kernels extra (nvidia-cuda-nvrtc-cu12==12.8.93), or set "
    f"{LIBRARY_ENV} to a libnvrtc.so of a toolkit that knows this architecture"
)


class BuildError(RuntimeError):
    """A kernel source did not compile, or no compiler for the architecture was found."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """One loaded libnvrtc: where it lies, its version and the architectures it can emit."""

    path: Path
    version: str
    architectures: tuple[int, ...]
    handle: ctypes.CDLL


def _candidates() -> list[Path]:
    named = os.environ.get(LIBRARY_ENV)
    if named:
        return [Path(named)]
    roots = [Path(entry) / "nvidia" for entry in sys.path if entry]
    roots += sorted(Path("/usr/local").glob("cuda*"), reverse=True)
    found: dict[Path, None] = {}
    for root in roots:
        for pattern in ("*/lib/libnvrtc.so.*", "lib64/libnvrtc.so*"):
            for path in sorted(root.glob(pattern)):
                if "alt" not in path.name:
                    found.setdefault(path.resolve())
    return list(found)


def _load(path: Path) -> Compiler:
    handle = ctypes.CDLL(str(path))
    major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    handle.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    handle.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    handle.nvrtcGetSupportedArchs(numbers)
    return Compiler(path, f"{major.value}.{minor.value}", tuple(numbers), handle)


def find_compiler(arch: str) -> Compiler:
    """Return the oldest NVRTC found that can emit `arch` ("sm_70").

    The oldest, because only a 12.x one emits sm_70: one compiler then makes every binary of the
    ledger, whatever newer libraries torch brought along.

    Raises:
        BuildError: if there is none, listing those found with what they support.
    """
    number = int(re.sub(r"\D", "", arch))
    seen: list[str] = []
    able: list[Compiler] = []
    for path in _candidates():
        compiler = _load(path)
        if number in compiler.architectures:
            able.append(compiler)
        seen.append(f"{path} ({compiler.version}: {compiler.architectures[0]} and up)")
    if able:
        return min(able, key=lambda c: tuple(int(part) for part in c.version.split(".")))
    raise BuildError(f"no NVRTC for {arch}; found {seen or 'none'}; {REMEDY}")


def compile_cubin(
    compiler: Compiler, source: str, *, name: str, options: tuple[str, ...]
) -> tuple[bytes, str]:
    """Compile one translation unit to a cubin.

    Returns the cubin and the compiler's log. Raises BuildError with the log if it fails.
    """
    lib, program = compiler.handle, ctypes.c_void_p()
    lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
    encoded = [option.encode() for option in options]
    status = lib.nvrtcCompileProgram(
        program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded)
    )
    log = _read(lib, program, "ProgramLog").decode().rstrip("\0").strip()
    try:
        if status:
            raise BuildError(
                f"{name}: NVRTC {compiler.version} refused it (status {status}):\n{log}"
            )
        return _read(lib, program, "CUBIN"), log
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def _read(lib: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(lib, f"nvrtcGet{what}")(program, buffer)
    return buffer.raw
