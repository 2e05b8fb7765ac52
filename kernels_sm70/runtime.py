# SPDX-License-Identifier: Apache-2.0
"""Load cubins and launch their entries on torch's current stream, through NVIDIA's cuda-bindings.

Why not cuda-core's launch: it passes scalars and pointers only (our kernels take one Args struct by
value) and has no attribute for programmatic dependent launch. cuda-bindings is the layer below it.
Launches are plain stream work, so CUDA-graph capture records them; nothing here synchronises.
"""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass
from typing import Any

import torch

from kernels_sm70.build import build
from kernels_sm70.contract import KernelSpec, arch_number
from kernels_sm70.registry import kernels_of

DEFINES_ENV = "KERNELS_SM70_DEFINES"
_lock = threading.Lock()
_functions: dict[tuple[int, str], Any] = {}


class LaunchError(RuntimeError):
    """The CUDA driver refused a load or a launch."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Grid in blocks and block in threads; `dependent` asks for programmatic dependent launch."""

    grid: tuple[int, int, int]
    threads: int
    dynamic_shared_bytes: int = 0
    cluster: int = 1
    dependent: bool = True


def forced_volta() -> bool:
    """Whether this process builds with Volta's matrix instruction on a newer card (checks only,
    fp16 only).
    """
    return "KS_FORCE_VOLTA_ATOM" in os.environ.get(DEFINES_ENV, "")


def architecture(device: torch.device) -> str:
    """The architecture to compile for on this device: "sm_70" on Volta, "sm_90" on Hopper."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def launch(
    spec: KernelSpec, args: ctypes.Structure, geometry: Geometry, *, device: torch.device
) -> None:
    """Enqueue one kernel on the current stream of `device`.

    Raises:
        LaunchError: with the driver's own words.
        BuildError: the first time, if the kernel cannot be compiled here.
    """
    from cuda.bindings import driver

    index = _index(device)
    if (index, spec.entry) not in _functions:
        _load(spec.operation, index)
    function = _functions.get((index, spec.entry))
    if function is None:
        raise LaunchError(
            f"{spec.entry}: not in the build for {architecture(device)}; it is for {spec.arches}"
        )
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = geometry.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = geometry.threads, 1, 1
    config.sharedMemBytes = geometry.dynamic_shared_bytes
    config.hStream = driver.CUstream(torch.cuda.current_stream(index).cuda_stream)
    attributes = _attributes(driver, geometry, index)
    config.attrs, config.numAttrs = attributes, len(attributes)
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(args))
    (status,) = driver.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0)
    _check(driver, status, f"launch {spec.entry} {geometry}")


def _attributes(driver: Any, geometry: Geometry, index: int) -> list[Any]:
    if torch.cuda.get_device_capability(index)[0] < 9:
        return []
    attributes = []
    if geometry.dependent:
        attribute = driver.CUlaunchAttribute()
        attribute.id = (
            driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        )
        attribute.value.programmaticStreamSerializationAllowed = 1
        attributes.append(attribute)
    if geometry.cluster > 1:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dim = attribute.value.clusterDim
        dim.x, dim.y, dim.z = geometry.cluster, 1, 1
        attributes.append(attribute)
    return attributes


def preload(operations: tuple[str, ...], device: torch.device) -> None:
    """Compile and load operations now: a first launch inside a graph capture may not load code."""
    for operation in operations:
        _load(operation, _index(device))


def _index(device: torch.device) -> int:
    return int(torch.cuda.current_device() if device.index is None else device.index)


def _load(operation: str, index: int) -> None:
    """Load the operation's cubin once per device; every entry of it stays resident."""
    from cuda.bindings import driver

    device = torch.device("cuda", index)
    arch = architecture(device)
    specs = [spec for spec in kernels_of(operation) if _compiled(spec, arch)]
    with _lock, torch.cuda.device(index):
        if all((index, spec.entry) in _functions for spec in specs):
            return
        torch.zeros(1, device=device)  # makes torch's primary context current in this thread
        artifact = build(operation, arch, defines=_defines())
        status, library = driver.cuLibraryLoadData(artifact.cubin, [], [], 0, [], [], 0)
        _check(driver, status, f"load {operation}")
        for spec in specs:
            status, kernel = driver.cuLibraryGetKernel(library, spec.entry.encode())
            _check(driver, status, f"find {spec.entry}")
            status, function = driver.cuKernelGetFunction(kernel)
            _check(driver, status, f"resolve {spec.entry}")
            shared = spec.dynamic_shared(arch)
            if shared:  # static and dynamic together may pass 48 KiB only after asking
                wanted = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                (status,) = driver.cuFuncSetAttribute(function, wanted, shared)
                _check(driver, status, f"{spec.entry}: {shared} B of shared memory")
            _functions[index, spec.entry] = function


def _defines() -> tuple[str, ...]:
    return tuple(filter(None, os.environ.get(DEFINES_ENV, "").split(",")))


def _compiled(spec: KernelSpec, arch: str) -> bool:
    """Whether the build for `arch` holds the entry: bf16 needs Ampere, and Volta's atom has
    none.
    """
    if forced_volta() and spec.storage == "bf16":
        return False
    return any(arch_number(known) <= arch_number(arch) for known in spec.arches)


def _check(driver: Any, status: Any, what: str) -> None:
    if int(status) == 0:
        return
    _, name = driver.cuGetErrorName(status)
    _, text = driver.cuGetErrorString(status)
    words = [part.decode() if isinstance(part, bytes) else str(part) for part in (name, text)]
    raise LaunchError(f"{what}: {words[0]}: {words[1]}")
