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
from kernels_sm70.contract import KernelSpec

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

    index = torch.cuda.current_device() if device.index is None else device.index
    function = _functions.get((index, spec.entry)) or _load(spec, index, geometry)
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


def _load(spec: KernelSpec, index: int, geometry: Geometry) -> Any:
    """Load the operation's cubin once per device; every entry of it stays resident."""
    from cuda.bindings import driver

    with _lock, torch.cuda.device(index):
        torch.cuda.current_stream(index)  # makes torch's primary context current in this thread
        torch.cuda.synchronize(index) if not torch.cuda.is_initialized() else None
        key = (index, spec.entry)
        if key in _functions:
            return _functions[key]
        defines = tuple(filter(None, os.environ.get(DEFINES_ENV, "").split(",")))
        artifact = build(spec.operation, architecture(torch.device("cuda", index)), defines=defines)
        status, library = driver.cuLibraryLoadData(artifact.cubin, [], [], 0, [], [], 0)
        _check(driver, status, f"load {spec.operation}")
        status, kernel = driver.cuLibraryGetKernel(library, spec.entry.encode())
        _check(driver, status, f"find {spec.entry}")
        status, function = driver.cuKernelGetFunction(kernel)
        _check(driver, status, f"resolve {spec.entry}")
        if geometry.dynamic_shared_bytes > 48 * 1024:
            wanted = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            (status,) = driver.cuFuncSetAttribute(function, wanted, geometry.dynamic_shared_bytes)
            _check(
                driver, status, f"{spec.entry}: {geometry.dynamic_shared_bytes} B of shared memory"
            )
        _functions[key] = function
        return function


def _check(driver: Any, status: Any, what: str) -> None:
    if int(status) == 0:
        return
    _, name = driver.cuGetErrorName(status)
    _, text = driver.cuGetErrorString(status)
    words = [part.decode() if isinstance(part, bytes) else str(part) for part in (name, text)]
    raise LaunchError(f"{what}: {words[0]}: {words[1]}")
