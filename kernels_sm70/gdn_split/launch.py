# SPDX-License-Identifier: Apache-2.0
"""Checks at the door, Args and grid of the GDN split."""

from __future__ import annotations

import ctypes
from typing import Any

from kernels_sm70.contract import check_layout, refuse, row_stride
from kernels_sm70.gdn_split import KERNELS
from kernels_sm70.runtime import Geometry, launch

WHERE = "gdn_split"
ROWS_MAX = 2**31 - 1


class Args(ctypes.Structure):
    """Mirror of ks::gdn_split::Args."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("qkvz", "ba", "qkv", "z", "b", "a", "hits")),
        *((name, ctypes.c_longlong) for name in ("rows", "qkvz_stride", "ba_stride")),
        *(
            (name, ctypes.c_int)
            for name in ("qkv_vectors", "z_vectors", "half_vectors", "reserved")
        ),
    )


def check(qkvz: Any, ba: Any, qkv_width: int) -> None:
    """Refuse inputs outside the contract.

    Raises:
        ContractError: naming the clause.
    """
    for name, tensor in (("qkvz", qkvz), ("ba", ba)):
        if tensor.dim() != 2:
            raise refuse(
                WHERE,
                what=f"{name} dimensions",
                expected="2",
                found=tensor.dim(),
                remedy="flatten the leading dimensions",
            )
        if tensor.element_size() != 2 or not tensor.dtype.is_floating_point:
            raise refuse(
                WHERE,
                what=f"{name} dtype",
                expected="a 16-bit floating type",
                found=tensor.dtype,
                remedy="use the original route",
            )
    _check_shapes(qkvz, ba, qkv_width)
    check_layout(WHERE, "qkvz", qkvz, row_alignment_bytes=16)
    check_layout(WHERE, "ba", ba, row_alignment_bytes=8)


def _check_shapes(qkvz: Any, ba: Any, qkv_width: int) -> None:
    rows, width = qkvz.shape
    if not 1 <= rows <= ROWS_MAX:
        raise refuse(
            WHERE,
            what="M",
            expected=f"1 to {ROWS_MAX}",
            found=rows,
            remedy="skip an empty batch; split a larger one",
        )
    if ba.shape[0] != rows or ba.dtype != qkvz.dtype or ba.device != qkvz.device:
        raise refuse(
            WHERE,
            what="ba",
            expected=f"{rows} rows of {qkvz.dtype} on {qkvz.device}",
            found=f"{ba.shape[0]} rows of {ba.dtype} on {ba.device}",
            remedy="pass both projections of the same batch",
        )
    if not 0 < qkv_width < width or qkv_width % 8 or (width - qkv_width) % 8:
        raise refuse(
            WHERE,
            what="q|k|v width",
            expected=f"a multiple of 8 inside 0..{width}",
            found=qkv_width,
            remedy="use the original route for this geometry",
        )
    if ba.shape[1] % 8 or not 0 < ba.shape[1] <= 512:
        raise refuse(
            WHERE,
            what="ba width",
            expected="a multiple of 8 up to 512",
            found=ba.shape[1],
            remedy="use the original route for this geometry",
        )


def plan(qkvz: Any, ba: Any, outputs: tuple[Any, ...], *, hits: int) -> tuple[Args, Geometry]:
    """Args and geometry for checked inputs. `outputs`: (qkv or None, z, b, a), packed; `hits`: an
    address or 0.
    """
    qkv, z, b, a = outputs
    rows, width = qkvz.shape
    z_vectors = z.shape[1] // 8
    qkv_vectors = width // 8 - z_vectors
    spec = KERNELS[0]
    moved = z_vectors + (qkv_vectors if qkv is not None else 0)
    args = Args(
        qkvz.data_ptr(),
        ba.data_ptr(),
        qkv.data_ptr() if qkv is not None else None,
        z.data_ptr(),
        b.data_ptr(),
        a.data_ptr(),
        hits or None,
        rows,
        row_stride(qkvz),
        row_stride(ba),
        qkv_vectors,
        z_vectors,
        ba.shape[1] // 8,
        0,
    )
    return args, Geometry((rows, -(-moved // spec.threads), 1), spec.threads)


def run(qkvz: Any, ba: Any, outputs: tuple[Any, ...], *, hits: int = 0) -> None:
    """Enqueue the copy into given outputs (poisoned ones in the checks)."""
    args, geometry = plan(qkvz, ba, outputs, hits=hits)
    launch(KERNELS[0], args, geometry, device=qkvz.device)
