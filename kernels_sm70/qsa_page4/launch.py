# SPDX-License-Identifier: Apache-2.0
"""Checks at the door, Args and grid of the page list."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch

from kernels_sm70.contract import check_rows, check_tensor, refuse, row_stride
from kernels_sm70.qsa_page4 import BLOCKS, BLOCKS_MAX, KERNELS, RATIO, WIDTH, bitmap_words
from kernels_sm70.runtime import Geometry, launch

WHERE = "qsa_page4"
ROWS_MAX = 2**31 - 1


class Args(ctypes.Structure):
    """Mirror of ks::qsa_page4::Args."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in (
                "blocks",
                "positions",
                "visible",
                "requests",
                "block_table",
                "out",
                "hits",
            )
        ),
        *((name, ctypes.c_longlong) for name in ("blocks_stride", "table_stride")),
        *(
            (name, ctypes.c_int)
            for name in (
                "rows",
                "request_count",
                "table_width",
                "page_tokens",
                "physical_pages",
                "wide_positions",
                "words",
            )
        ),
    )


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a list is made from. `page_tokens`: tokens of a KV page; `physical_pages`: the
    cache's."""

    blocks: torch.Tensor
    positions: torch.Tensor
    visible: torch.Tensor
    requests: torch.Tensor
    block_table: torch.Tensor
    page_tokens: int
    physical_pages: int


def check(inputs: Inputs, out: Any) -> None:
    """Refuse inputs outside the contract.

    Raises:
        ContractError: naming the tensor and the clause.
    """
    if inputs.blocks.dim() != 2 or inputs.block_table.dim() != 2:
        raise refuse(
            WHERE,
            what="dimensions of blocks and block_table",
            expected="2 and 2",
            found=(inputs.blocks.dim(), inputs.block_table.dim()),
            remedy="flatten the leading dimensions",
        )
    rows, device, word = int(inputs.blocks.shape[0]), inputs.blocks.device, torch.int32
    check_rows(WHERE, rows, low=1, high=ROWS_MAX)
    wide = torch.int64 if inputs.positions.dtype == torch.int64 else word
    wanted: tuple[tuple[str, Any, tuple[int | None, ...], torch.dtype], ...] = (
        ("blocks", inputs.blocks, (rows, BLOCKS), word),
        ("positions", inputs.positions, (rows,), wide),
        ("visible", inputs.visible, (rows,), word),
        ("requests", inputs.requests, (rows,), word),
        ("block_table", inputs.block_table, (None, None), word),
        ("out", out, (rows, WIDTH), word),
    )
    for name, tensor, shape, dtype in wanted:
        size = tensor.element_size()
        check_tensor(
            WHERE, name, tensor, shape=shape, dtype=dtype, device=device, row_alignment_bytes=size
        )
    _check_pages(inputs, out)


def _check_pages(inputs: Inputs, out: Any) -> None:
    if inputs.page_tokens < RATIO or inputs.page_tokens % RATIO:
        raise refuse(
            WHERE,
            what="tokens of a KV page",
            expected=f"a positive multiple of {RATIO}",
            found=inputs.page_tokens,
            remedy="use the original route for this cache",
        )
    blocks = int(inputs.block_table.shape[1]) * inputs.page_tokens // RATIO
    if not 1 <= blocks <= BLOCKS_MAX:
        raise refuse(
            WHERE,
            what="blocks the table can name",
            expected=f"1 to {BLOCKS_MAX}",
            found=blocks,
            remedy="use the original route for this context length",
        )
    largest = inputs.physical_pages * (inputs.page_tokens // RATIO)
    if inputs.physical_pages < 1 or largest > 2**31 - 1:
        raise refuse(
            WHERE,
            what="4-token pages of the cache",
            expected="1 to 2^31 - 1",
            found=largest,
            remedy="use the original route for this cache",
        )
    if not out.is_contiguous():
        raise refuse(
            WHERE,
            what="out layout",
            expected="packed",
            found=f"strides {out.stride()}",
            remedy="pass a tensor of its own",
        )


def plan(inputs: Inputs, out: Any, *, hits: int = 0) -> tuple[Args, Geometry]:
    """Args and geometry of a checked call."""
    rows = int(inputs.blocks.shape[0])
    words = bitmap_words(int(inputs.block_table.shape[1]), inputs.page_tokens)
    args = Args(
        inputs.blocks.data_ptr(),
        inputs.positions.data_ptr(),
        inputs.visible.data_ptr(),
        inputs.requests.data_ptr(),
        inputs.block_table.data_ptr(),
        out.data_ptr(),
        hits or None,
        row_stride(inputs.blocks),
        row_stride(inputs.block_table),
        rows,
        int(inputs.block_table.shape[0]),
        int(inputs.block_table.shape[1]),
        inputs.page_tokens,
        inputs.physical_pages,
        int(inputs.positions.dtype == torch.int64),
        words,
    )
    return args, Geometry((rows, 1, 1), KERNELS[0].threads, dynamic_shared_bytes=8 * words)


def run(inputs: Inputs, out: torch.Tensor, *, hits: int = 0) -> torch.Tensor:
    """Enqueue a checked call and return `out`."""
    args, geometry = plan(inputs, out, hits=hits)
    launch(KERNELS[0], args, geometry, device=out.device)
    return out
