# SPDX-License-Identifier: Apache-2.0
"""Checks at the door, Args and grid of the expansion."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from kernels_sm70.contract import KernelSpec, check_rows, check_tensor, refuse, row_stride
from kernels_sm70.qsa_expand import BLOCKS, KERNELS, WIDTH
from kernels_sm70.runtime import Geometry, launch

WHERE = "qsa_expand"
ROWS_MAX = 2**31 - 1
ALIGNED, UNALIGNED = KERNELS


class Args(ctypes.Structure):
    """Mirror of ks::qsa_expand::Args."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in ("blocks", "positions", "visible", "out", "hits", "rejected")
        ),
        *((name, ctypes.c_longlong) for name in ("blocks_stride", "out_stride")),
        *((name, ctypes.c_int) for name in ("rows", "wide_positions")),
    )


def check(blocks: Any, positions: Any, visible: Any, out: Any) -> None:
    """Refuse tensors outside the contract.

    Raises:
        ContractError: naming the tensor and the clause.
    """
    if blocks.dim() != 2:
        raise refuse(
            WHERE,
            what="blocks dimensions",
            expected="2",
            found=blocks.dim(),
            remedy="flatten the leading dimensions",
        )
    rows, device, word = int(blocks.shape[0]), blocks.device, torch.int32
    check_rows(WHERE, rows, low=1, high=ROWS_MAX)
    wide = positions.dtype if positions.dtype == torch.int64 else word
    wanted = (
        ("blocks", blocks, (rows, BLOCKS), word),
        ("positions", positions, (rows,), wide),
        ("visible", visible, (rows,), word),
        ("out", out, (rows, WIDTH), word),
    )
    for name, tensor, shape, dtype in wanted:
        size = tensor.element_size()
        check_tensor(
            WHERE, name, tensor, shape=shape, dtype=dtype, device=device, row_alignment_bytes=size
        )
    if rows > 1 and out.stride(0) < WIDTH:
        raise refuse(
            WHERE,
            what="out row stride",
            expected=f"at least {WIDTH}",
            found=out.stride(0),
            remedy="pass rows that do not overlap",
        )


def plan(
    blocks: Any, positions: Any, visible: Any, out: Any, *, hits: int = 0, rejected: int = 0
) -> tuple[KernelSpec, Args, Geometry]:
    """The kernel, Args and geometry of a checked call."""
    rows = int(blocks.shape[0])
    aligned = out.data_ptr() % 16 == 0 and (rows == 1 or out.stride(0) % 4 == 0)
    spec = ALIGNED if aligned else UNALIGNED
    args = Args(
        blocks.data_ptr(),
        positions.data_ptr(),
        visible.data_ptr(),
        out.data_ptr(),
        hits or None,
        rejected or None,
        row_stride(blocks),
        row_stride(out),
        rows,
        int(positions.dtype == torch.int64),
    )
    return spec, args, Geometry((rows, -(-WIDTH // (4 * spec.threads)), 1), spec.threads)


def run(
    blocks: Any, positions: Any, visible: Any, out: Any, *, hits: int = 0, rejected: int = 0
) -> None:
    """Enqueue a checked call."""
    spec, args, geometry = plan(blocks, positions, visible, out, hits=hits, rejected=rejected)
    launch(spec, args, geometry, device=blocks.device)
