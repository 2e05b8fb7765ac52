# SPDX-License-Identifier: Apache-2.0
"""The clauses of the hyper-connection's contract, checked at the door."""

from __future__ import annotations

from typing import Any

import torch

from kernels_sm70.contract import check_rows, check_tensor, refuse
from kernels_sm70.hyper_connection import HIDDEN_MAX, RANK_MAX, ROWS_MAX, STREAMS

WHERE = "hyper_connection"
STORAGES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def address(tensor: Any) -> int | None:
    """The tensor's address, or a null pointer for None."""
    return None if tensor is None else int(tensor.data_ptr())


def storage_of(tensor: Any) -> str:
    """ "fp16" or "bf16"; anything else is out of contract."""
    storage = STORAGES.get(tensor.dtype)
    if storage is None:
        raise refuse(
            WHERE,
            what="dtype",
            expected="float16 or bfloat16",
            found=tensor.dtype,
            remedy="use the original route",
        )
    return storage


def check_sizes(rows: int, hidden: int) -> None:
    """Refuse M outside 1..24 and hidden sizes the kernels are not written for."""
    check_rows(WHERE, rows, low=1, high=ROWS_MAX)
    if hidden % 16 or not 0 < hidden <= HIDDEN_MAX:
        raise refuse(
            WHERE,
            what="hidden size",
            expected=f"a multiple of 16 up to {HIDDEN_MAX}",
            found=hidden,
            remedy="use the original route",
        )


def check_rank(rank: int) -> None:
    """Refuse a low rank that is not a multiple of 32 up to 320."""
    if rank % 32 or not 0 < rank <= RANK_MAX:
        raise refuse(
            WHERE,
            what="low rank",
            expected=f"a multiple of 32 up to {RANK_MAX}",
            found=rank,
            remedy="use the original route",
        )


def tiles_of(rows: int) -> int:
    """Token tiles of eight: 1, 2 or 3."""
    return -(-rows // 8)


def check_norm(residual: Any, block: Any, injection: Any, weight: Any, combined: Any) -> None:
    """Refuse operands of combine + norm; `block`, `injection` and then `combined` may be None."""
    storage_of(residual)
    rows, depth = residual.shape
    hidden = depth // STREAMS
    check_sizes(rows, hidden)
    same = {"dtype": residual.dtype, "device": residual.device}
    check_tensor(WHERE, "residual", residual, shape=(None, STREAMS * hidden), **same)
    if block is not None:
        check_tensor(WHERE, "block", block, shape=(rows, hidden), **same)
        check_tensor(WHERE, "combined", combined, shape=(rows, depth), **same)
    if injection is not None:
        check_tensor(
            WHERE, "injection", injection, shape=(rows, STREAMS), row_alignment_bytes=2, **same
        )
    width = weight.numel()
    if width not in (hidden, depth):
        raise refuse(
            WHERE,
            what="norm weight elements",
            expected=f"{hidden} or {depth}",
            found=width,
            remedy="pass the per-branch or the shared norm weight",
        )
    check_tensor(WHERE, "norm weight", weight.view(1, -1), shape=(1, width), **same)


def check_down(normed: Any, weight: Any, lora: Any, injection: Any) -> None:
    """Refuse operands of down + inject; `injection` may be None."""
    storage_of(normed)
    (rows, depth), lora_rows = normed.shape, lora.shape[1]
    extra = 0 if injection is None else injection.shape[1]
    check_sizes(rows, depth // STREAMS)
    same = {"dtype": normed.dtype, "device": normed.device}
    check_tensor(WHERE, "down weight", weight, shape=(None, depth), **same)
    if (
        weight.shape[0] < lora_rows + extra
        or not weight.is_contiguous()
        or not normed.is_contiguous()
    ):
        raise refuse(
            WHERE,
            what="down operands",
            expected=f"packed, at least {lora_rows + extra} weight rows",
            found=f"{tuple(weight.shape)} strides {weight.stride()}",
            remedy="pass packed rows",
        )
