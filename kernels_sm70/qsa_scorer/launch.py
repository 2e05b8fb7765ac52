# SPDX-License-Identifier: Apache-2.0
"""Checks at the door, Args and grids of the scorer."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import torch

from kernels_sm70.contract import KernelSpec, check_rows, check_tensor, refuse, row_stride
from kernels_sm70.qsa_scorer import (
    DIM,
    HEADS,
    REQUESTS_MAX,
    ROWS_PER_REQUEST_MAX,
    SPECS,
    UNIT_KEYS,
)
from kernels_sm70.runtime import Geometry, launch

WHERE = "qsa_scorer"
STORAGE = {torch.float16: "fp16", torch.bfloat16: "bf16"}
COLUMNS_MAX = 2**31 - 1 - UNIT_KEYS
BLOCKS_PER_MULTIPROCESSOR = 3  # what the registers allow on sm_90
WARPS = 4


class Schedule(Enum):
    """How units of 32 keys are dealt to warps."""

    LIVE = "live units shared evenly"
    STRIDE = "fixed grid, stride within a request"
    CAPACITY = "capacity grid, early exit"
    GROUPED = "capacity grid, 4 units a warp"


class Args(ctypes.Structure):
    """Mirror of ks::qsa_scorer::Args."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in ("q", "keys", "page_table", "visible", "scores", "hits")
        ),
        *(
            (name, ctypes.c_longlong)
            for name in (
                "q_row_stride",
                "q_head_stride",
                "key_page_stride",
                "key_row_stride",
                "table_stride",
                "score_stride",
            )
        ),
        *(
            (name, ctypes.c_int)
            for name in (
                "requests",
                "rows_per_request",
                "table_width",
                "page_keys",
                "physical_pages",
                "group",
            )
        ),
    )


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is scored: `rows_per_request` consecutive rows of q share a row of the page table."""

    q: torch.Tensor
    keys: torch.Tensor
    page_table: torch.Tensor
    visible: torch.Tensor
    rows_per_request: int = 1

    @property
    def columns(self) -> int:
        """Keys the page table can name."""
        return int(self.page_table.shape[1]) * int(self.keys.shape[1])


def check(inputs: Inputs, scores: Any) -> None:
    """Refuse inputs or an output outside the contract.

    Raises:
        ContractError: naming the tensor and the clause.
    """
    check_inputs(inputs)
    shape = (int(inputs.q.shape[0]), inputs.columns)
    check_tensor(
        WHERE,
        "scores",
        scores,
        shape=shape,
        dtype=torch.float32,
        device=inputs.q.device,
        row_alignment_bytes=4,
    )
    if shape[0] > 1 and scores.stride(0) < inputs.columns:
        raise refuse(
            WHERE,
            what="scores row stride",
            expected=f"at least {inputs.columns}",
            found=scores.stride(0),
            remedy="pass rows that do not overlap",
        )


def check_inputs(inputs: Inputs) -> None:
    """Refuse inputs outside the contract.

    Raises:
        ContractError: naming the tensor and the clause.
    """
    _check_extents(inputs)
    q, keys, table = inputs.q, inputs.keys, inputs.page_table
    requests = int(table.shape[0])
    rows = requests * inputs.rows_per_request
    if keys.dim() == 4 and keys.shape[2] == 1:
        keys = keys[:, :, 0]
    wanted: tuple[tuple[str, Any, tuple[int | None, ...], torch.dtype, int], ...] = (
        ("q", q, (rows, HEADS, DIM), q.dtype, 16),
        ("keys", keys, (None, None, DIM), q.dtype, 16),
        ("page_table", table, (requests, None), torch.int32, 4),
        ("visible", inputs.visible, (rows,), torch.int32, 4),
    )
    for name, tensor, shape, dtype, align in wanted:
        check_tensor(
            WHERE,
            name,
            tensor,
            shape=shape,
            dtype=dtype,
            device=q.device,
            row_alignment_bytes=align,
        )


def _check_extents(inputs: Inputs) -> None:
    table = inputs.page_table
    if inputs.q.dtype not in STORAGE:
        raise refuse(
            WHERE,
            what="q dtype",
            expected="float16 or bfloat16",
            found=inputs.q.dtype,
            remedy="use the original route",
        )
    if table.dim() != 2 or inputs.keys.dim() < 3:
        raise refuse(
            WHERE,
            what="dimensions of page_table and keys",
            expected="2, and 3 or 4",
            found=(table.dim(), inputs.keys.dim()),
            remedy="pass one table row a request and a paged cache",
        )
    check_rows(WHERE + " requests", int(table.shape[0]), low=1, high=REQUESTS_MAX)
    check_rows(WHERE + " rows a request", inputs.rows_per_request, low=1, high=ROWS_PER_REQUEST_MAX)
    if not 1 <= inputs.columns <= COLUMNS_MAX:
        raise refuse(
            WHERE,
            what="keys the page table can name",
            expected=f"1 to {COLUMNS_MAX}",
            found=inputs.columns,
            remedy="use the original route for this context length",
        )


@cache
def multiprocessors(device: torch.device) -> int:
    """The device's multiprocessors; an H200's number for a CPU, where only the emulation asks."""
    if device.type != "cuda":
        return 132
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def grid(inputs: Inputs, schedule: Schedule, processors: int) -> tuple[int, int, int]:
    """Blocks of a launch: from shapes alone, as a captured graph needs."""
    requests = int(inputs.page_table.shape[0])
    units = -(-inputs.columns // UNIT_KEYS)
    resident = BLOCKS_PER_MULTIPROCESSOR * processors
    if schedule is Schedule.LIVE:
        return (min(-(-units * requests // WARPS), resident), 1, 1)
    if schedule is Schedule.STRIDE:
        return (min(-(-units // WARPS), -(-resident // requests)), requests, 1)
    return (-(-units // (WARPS * group_of(schedule))), requests, 1)


def group_of(schedule: Schedule) -> int:
    """Consecutive units of a warp in the capacity grids."""
    return 4 if schedule is Schedule.GROUPED else 1


def plan(
    inputs: Inputs, scores: Any, *, schedule: Schedule = Schedule.LIVE, hits: int = 0
) -> tuple[KernelSpec, Args, Geometry]:
    """The kernel, Args and geometry of a checked call."""
    keys = inputs.keys
    infix = {Schedule.LIVE: "", Schedule.STRIDE: "stride_"}.get(schedule, "capacity_")
    spec = SPECS[f"ks_qsa_score_{infix}{STORAGE[inputs.q.dtype]}"]
    args = Args(
        inputs.q.data_ptr(),
        keys.data_ptr(),
        inputs.page_table.data_ptr(),
        inputs.visible.data_ptr(),
        scores.data_ptr(),
        hits or None,
        int(inputs.q.stride(0)),
        int(inputs.q.stride(1)),
        int(keys.stride(0)),
        int(keys.stride(1)),
        row_stride(inputs.page_table),
        row_stride(scores),
        int(inputs.page_table.shape[0]),
        inputs.rows_per_request,
        int(inputs.page_table.shape[1]),
        int(keys.shape[1]),
        int(keys.shape[0]),
        group_of(schedule),
    )
    return spec, args, Geometry(grid(inputs, schedule, multiprocessors(keys.device)), spec.threads)


def run(
    inputs: Inputs, scores: torch.Tensor, *, schedule: Schedule = Schedule.LIVE, hits: int = 0
) -> torch.Tensor:
    """Enqueue a checked call and return `scores`."""
    spec, args, geometry = plan(inputs, scores, schedule=schedule, hits=hits)
    launch(spec, args, geometry, device=scores.device)
    return scores
