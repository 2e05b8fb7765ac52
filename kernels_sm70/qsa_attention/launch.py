# SPDX-License-Identifier: Apache-2.0
"""Checks at the door, Args and grids of the sparse attention."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernels_sm70.contract import KernelSpec, check_rows, check_tensor, refuse
from kernels_sm70.qsa_attention import DIM, HEADS, SPECS, SPLITS
from kernels_sm70.qsa_page4 import WIDTH
from kernels_sm70.runtime import Geometry, launch

WHERE = "qsa_attention"
STORAGE = {torch.float16: "fp16", torch.bfloat16: "bf16"}
ROWS_MAX = 65535  # the rows are the grid's second extent


class Args(ctypes.Structure):
    """Mirror of ks::qsa_attention::Args."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in (
                "q",
                "k",
                "v",
                "gate",
                "list",
                "partial",
                "statistics",
                "out",
                "hits",
            )
        ),
        *(
            (name, ctypes.c_longlong)
            for name in ("q_row_stride", "q_head_stride", "page_stride", "token_stride")
        ),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_int) for name in ("rows", "page_tokens", "reserved")),
    )


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is attended: k and v are [N, P, 256] views of one cache."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    gate: torch.Tensor
    pages: torch.Tensor


@dataclass(frozen=True, slots=True)
class Buffers:
    """What a call writes: split results [M, 17, 6, 256] and [M, 17, 6, 2] float32, and the
    output."""

    partial: torch.Tensor
    statistics: torch.Tensor
    out: torch.Tensor


def flat_cache(cache: torch.Tensor) -> torch.Tensor:
    """[N, P, 1, 256] -> [N, P, 256]."""
    return cache[:, :, 0] if cache.dim() == 4 and cache.shape[2] == 1 else cache


def check(inputs: Inputs) -> None:
    """Refuse inputs outside the contract.

    Raises:
        ContractError: naming the tensor and the clause.
    """
    q = inputs.q
    if q.dtype not in STORAGE:
        raise refuse(
            WHERE,
            what="q dtype",
            expected="float16 or bfloat16",
            found=q.dtype,
            remedy="use the original route",
        )
    rows = int(q.shape[0])
    check_rows(WHERE, rows, low=1, high=ROWS_MAX)
    wanted: tuple[tuple[str, Any, tuple[int | None, ...], torch.dtype, int], ...] = (
        ("q", q, (rows, HEADS, DIM), q.dtype, 16),
        ("k", inputs.k, (None, None, DIM), q.dtype, 16),
        ("v", inputs.v, tuple(inputs.k.shape), q.dtype, 16),
        ("gate", inputs.gate, (rows, HEADS, DIM), q.dtype, 16),
        ("pages", inputs.pages, (rows, WIDTH), torch.int32, 4),
    )
    for name, tensor, shape, dtype, alignment in wanted:
        check_tensor(
            WHERE,
            name,
            tensor,
            shape=shape,
            dtype=dtype,
            device=q.device,
            row_alignment_bytes=alignment,
        )
    _check_layouts(inputs)


def _check_layouts(inputs: Inputs) -> None:
    packed = inputs.gate.is_contiguous() and inputs.pages.is_contiguous()
    if inputs.k.stride() != inputs.v.stride() or inputs.k.shape[1] % 4 or not packed:
        raise refuse(
            WHERE,
            what="layout of k, v, gate and pages",
            expected="k and v of equal strides, pages of 4 n tokens, packed gate and list",
            found=(inputs.k.stride(), inputs.v.stride(), tuple(inputs.k.shape), packed),
            remedy="pass the two halves of one cache and the operations' own outputs",
        )


def allocate(inputs: Inputs) -> Buffers:
    """Uninitialised buffers for a call."""
    rows, device = inputs.q.shape[0], inputs.q.device
    return Buffers(
        torch.empty(rows, SPLITS, HEADS, DIM, dtype=torch.float32, device=device),
        torch.empty(rows, SPLITS, HEADS, 2, dtype=torch.float32, device=device),
        torch.empty(rows, HEADS, DIM, dtype=inputs.q.dtype, device=device),
    )


def steps(
    inputs: Inputs, buffers: Buffers, *, hits: int = 0
) -> Iterator[tuple[KernelSpec, Args, Geometry]]:
    """The two launches of a checked call, in order."""
    args = Args(
        inputs.q.data_ptr(),
        inputs.k.data_ptr(),
        inputs.v.data_ptr(),
        inputs.gate.data_ptr(),
        inputs.pages.data_ptr(),
        buffers.partial.data_ptr(),
        buffers.statistics.data_ptr(),
        buffers.out.data_ptr(),
        hits or None,
        int(inputs.q.stride(0)),
        int(inputs.q.stride(1)),
        int(inputs.k.stride(0)),
        int(inputs.k.stride(1)),
        DIM**-0.5 * math.log2(math.e),
        int(inputs.q.shape[0]),
        int(inputs.k.shape[1]),
        0,
    )
    storage = STORAGE[inputs.q.dtype]
    for name, width in (("split", SPLITS), ("merge", HEADS)):
        spec = SPECS[f"ks_qsa_attention_{name}_{storage}"]
        yield spec, args, Geometry((width, int(inputs.q.shape[0]), 1), spec.threads)


def run(inputs: Inputs, buffers: Buffers, *, hits: int = 0) -> torch.Tensor:
    """Enqueue a checked call and return the output."""
    for spec, args, geometry in steps(inputs, buffers, hits=hits):
        launch(spec, args, geometry, device=inputs.q.device)
    return buffers.out
