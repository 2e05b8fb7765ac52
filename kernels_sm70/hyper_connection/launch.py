# SPDX-License-Identifier: Apache-2.0
"""Checks at the door, Args and grids of the hyper-connection kernels.

Each `plan_*` builds (entry, Args, Geometry) from tensors and enqueues nothing, so the CPU tests
hand
the same plan to the emulation that a launch hands to the driver.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernels_sm70 import runtime
from kernels_sm70.contract import arch_number, check_tensor, refuse, row_stride
from kernels_sm70.hyper_connection import CLUSTER, DOWN_SLICE, SPECS, STREAMS
from kernels_sm70.hyper_connection.args import DownArgs, NormArgs, UpArgs
from kernels_sm70.hyper_connection.checks import (
    WHERE,
    address,
    check_down,
    check_norm,
    check_rank,
    check_sizes,
    storage_of,
    tiles_of,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """One launch that has passed its contract; `keeps` holds the tensors that `args` points to."""

    entry: str
    args: ctypes.Structure
    geometry: runtime.Geometry
    keeps: tuple[Any, ...]

    def launch(self, device: torch.device, *, dependent: bool = True) -> None:
        """Enqueue it on the current stream; not dependent: after the previous kernel ended."""
        geometry = replace(self.geometry, dependent=dependent)
        runtime.launch(SPECS[self.entry], self.args, geometry, device=device)


def plan_norm(
    residual: Any,
    block: Any,
    injection: Any,
    weight: Any,
    combined: Any,
    normed: Any,
    *,
    eps: float,
    arrivals: Any = None,
    hits: int = 0,
) -> Plan:
    """combine + norm. `block` and `injection` may be None; without a block `combined` may be None
    too.
    """
    check_norm(residual, block, injection, weight, combined)
    storage, (rows, depth) = storage_of(residual), residual.shape
    hidden = depth // STREAMS
    args = NormArgs(
        address(residual),
        address(block),
        address(injection),
        address(weight),
        address(combined),
        address(normed),
        address(arrivals),
        hits or None,
        row_stride(residual),
        0 if block is None else row_stride(block),
        0 if injection is None else row_stride(injection),
        rows,
        hidden,
        hidden if weight.numel() == depth else 0,
        0 if arrivals is None else arrivals.numel(),
        eps,
        0,
    )
    spec = SPECS[f"ks_hc_combine_norm_{storage}"]
    keeps = (residual, block, injection, weight, combined, normed, arrivals)
    return Plan(spec.entry, args, runtime.Geometry((STREAMS, rows, 1), spec.threads), keeps)


def down_grid(depth: int, outputs: int) -> tuple[int, int]:
    """(slices of 1280 k, tiles of 16 weight rows)."""
    return -(-depth // DOWN_SLICE), -(-outputs // 16)


def down_workspace(rows: int, depth: int, outputs: int, *, device: torch.device) -> tuple[Any, Any]:
    """(partials float32, arrivals int32), uninitialised, for the form without clusters."""
    slices, tiles = down_grid(depth, outputs)
    elements = slices * tiles * 16 * 8 * tiles_of(rows)
    return (
        torch.empty(elements, dtype=torch.float32, device=device),
        torch.empty(tiles, dtype=torch.int32, device=device),
    )


def plan_down(
    normed: Any,
    weight: Any,
    lora: Any,
    injection: Any,
    *,
    arch: str,
    workspace: tuple[Any, Any] | None,
    hits: int = 0,
) -> Plan:
    """down + inject. Without a workspace the clustered form is planned (sm_90, eight slices)."""
    storage, (rows, depth), lora_rows = storage_of(normed), normed.shape, lora.shape[1]
    extra = 0 if injection is None else injection.shape[1]
    check_down(normed, weight, lora, injection)
    slices, tiles = down_grid(depth, lora_rows + extra)
    form = "down" if workspace else "down_clustered"
    if workspace is None and (slices != CLUSTER or arch_number(arch) < 90):
        raise refuse(
            WHERE,
            what="clustered down",
            expected=f"sm_90 and {CLUSTER} slices",
            found=f"{arch} and {slices}",
            remedy="give a workspace",
        )
    partials, arrivals = workspace or (None, None)
    spec = SPECS[f"ks_hc_{form}_{storage}_t{tiles_of(rows)}"]
    args = DownArgs(
        address(normed),
        address(weight),
        address(lora),
        address(injection),
        address(partials),
        address(arrivals),
        hits or None,
        row_stride(lora),
        0 if injection is None else row_stride(injection),
        rows,
        depth,
        lora_rows,
        extra,
    )
    return Plan(
        spec.entry,
        args,
        runtime.Geometry(
            (slices, tiles, 1),
            spec.threads,
            spec.dynamic_shared(arch),
            cluster=1 if workspace else CLUSTER,
        ),
        (normed, weight, lora, injection, workspace),
    )


def plan_up(
    lora: Any,
    weight: Any,
    normed: Any,
    mixed: Any,
    *,
    arch: str,
    first_column: int = 0,
    hits: int = 0,
) -> Plan:
    """up + gate + mix of the columns first_column .. first_column + weight rows / 4, into `mixed`
    [M, columns].
    """
    storage, (rows, depth), rank = storage_of(normed), normed.shape, lora.shape[1]
    hidden, columns = depth // STREAMS, weight.shape[0] // STREAMS
    check_sizes(rows, hidden)
    check_rank(rank)
    same = {"dtype": normed.dtype, "device": normed.device}
    check_tensor(WHERE, "lora", lora, shape=(rows, rank), **same)
    check_tensor(WHERE, "up weight", weight, shape=(STREAMS * columns, rank), **same)
    check_tensor(WHERE, "mixed", mixed, shape=(rows, columns), row_alignment_bytes=2, **same)
    if (
        columns % 16
        or first_column % 16
        or first_column + columns > hidden
        or not weight.is_contiguous()
    ):
        raise refuse(
            WHERE,
            what="up columns",
            expected=f"packed multiples of 16 inside {hidden}",
            found=f"{first_column}..{first_column + columns}, strides {weight.stride()}",
            remedy="prepare the shard with weights.prepare_up_shard",
        )
    spec = SPECS[f"ks_hc_up_mix_{storage}_t{tiles_of(rows)}"]
    args = UpArgs(
        address(lora),
        address(weight),
        int(normed.data_ptr()) + 2 * first_column,
        address(mixed),
        hits or None,
        row_stride(lora),
        row_stride(mixed),
        rows,
        rank,
        columns,
        hidden,
    )
    return Plan(
        spec.entry,
        args,
        runtime.Geometry((columns // 16, 1, 1), spec.threads, spec.dynamic_shared(arch)),
        (lora, weight, normed, mixed),
    )
