# SPDX-License-Identifier: Apache-2.0
"""What every operation declares about its kernels, and the refusal raised outside a contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGE_ROOT = Path(__file__).resolve().parent
MATRIX_ROWS_MAX = 24


class ContractError(ValueError):
    """A tensor or launch outside an operation's contract; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One extern "C" entry of an operation's kernel.cuh.

    `floor_bytes` maps a case ("M4") to the bytes the kernel must move at least: every input read
    once, every output written once. `threads` is the block size of the entry's launch bounds.
    """

    entry: str
    operation: str
    storage: str
    threads: int
    matrix: bool
    floor_bytes: Mapping[str, int]
    dynamic_shared_bytes: int = 0
    volta_dynamic_shared_bytes: int | None = None
    arches: tuple[str, ...] = ("sm_70", "sm_90")
    defines: tuple[str, ...] = field(default=())

    def dynamic_shared(self, arch: str) -> int:
        """Dynamic shared memory of a launch on `arch`, bytes; Volta may differ (it stages in
        registers).
        """
        if arch in ("sm_70", "sm_75") and self.volta_dynamic_shared_bytes is not None:
            return self.volta_dynamic_shared_bytes
        return self.dynamic_shared_bytes

    @property
    def source(self) -> Path:
        """The translation unit that holds the entry."""
        return PACKAGE_ROOT / self.operation / "kernel.cuh"


def arch_number(arch: str) -> int:
    """70 for "sm_70"."""
    return int(arch.removeprefix("sm_"))


def refuse(where: str, *, what: str, expected: str, found: object, remedy: str) -> ContractError:
    """Return the error of a broken contract clause; callers raise it."""
    return ContractError(f"{where}: {what}: expected {expected}, found {found}; {remedy}")


def check_tensor(
    where: str,
    name: str,
    tensor: Any,
    *,
    shape: tuple[int | None, ...],
    dtype: Any,
    device: Any,
    row_alignment_bytes: int = 16,
) -> None:
    """Refuse a tensor whose shape, dtype, device, inner stride or alignment breaks the contract.

    `shape` may hold None for a free extent. Rows may be strided; the inner stride must be 1, and
    the base address and every outer stride must keep `row_alignment_bytes`.

    Raises:
        ContractError: naming the tensor, the clause, what was expected and what was found.
    """
    if tensor.dtype != dtype:
        raise refuse(
            where,
            what=f"{name} dtype",
            expected=str(dtype),
            found=tensor.dtype,
            remedy="convert it or use the original route",
        )
    if tensor.device != device:
        raise refuse(
            where,
            what=f"{name} device",
            expected=str(device),
            found=tensor.device,
            remedy="move it to the device of the first argument",
        )
    found = tuple(tensor.shape)
    fits = len(found) == len(shape) and all(
        want is None or want == have for want, have in zip(shape, found, strict=True)
    )
    if not fits:
        wanted = "[" + ", ".join("any" if n is None else str(n) for n in shape) + "]"
        raise refuse(
            where,
            what=f"{name} shape",
            expected=wanted,
            found=list(found),
            remedy="use the original route for this shape",
        )
    check_layout(where, name, tensor, row_alignment_bytes=row_alignment_bytes)


def check_layout(where: str, name: str, tensor: Any, *, row_alignment_bytes: int) -> None:
    """Refuse a non-unit inner stride, a misaligned base or row, or negative/overlapping rows."""
    strides, shape = tensor.stride(), tuple(tensor.shape)
    if shape and shape[-1] > 1 and strides[-1] != 1:
        raise refuse(
            where,
            what=f"{name} inner stride",
            expected="1",
            found=strides[-1],
            remedy="pass a tensor whose last dimension is contiguous",
        )
    size = tensor.element_size()
    if tensor.data_ptr() % row_alignment_bytes:
        raise refuse(
            where,
            what=f"{name} address",
            expected=f"a multiple of {row_alignment_bytes} B",
            found=hex(tensor.data_ptr()),
            remedy="pass an aligned view",
        )
    for dim in range(len(shape) - 1):
        if shape[dim] > 1 and (strides[dim] * size) % row_alignment_bytes:
            raise refuse(
                where,
                what=f"{name} stride of dimension {dim}",
                expected=f"a multiple of {row_alignment_bytes} B",
                found=f"{strides[dim] * size} B",
                remedy="pass rows that keep the alignment",
            )


def row_stride(tensor: Any) -> int:
    """Elements between rows; for a single row PyTorch may report any stride, so the width is
    used.
    """
    width = int(tensor.shape[-1])
    return int(tensor.stride(0)) if tensor.shape[0] > 1 else max(width, int(tensor.stride(0)))


def check_rows(where: str, rows: int, *, low: int, high: int) -> None:
    """Refuse M outside [low, high]."""
    if not low <= rows <= high:
        raise refuse(
            where,
            what="M",
            expected=f"{low} to {high} rows",
            found=rows,
            remedy="route this width to the original implementation",
        )
