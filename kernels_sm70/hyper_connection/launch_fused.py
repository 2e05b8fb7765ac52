# SPDX-License-Identifier: Apache-2.0
"""The one-launch form of combine + norm + down + inject (sm_90, H = 2560): checks, Args, grid."""

from __future__ import annotations

from typing import Any

from kernels_sm70 import runtime
from kernels_sm70.contract import arch_number, refuse, row_stride
from kernels_sm70.hyper_connection import CLUSTER, HIDDEN, SPECS, STREAMS
from kernels_sm70.hyper_connection.args import CombineDownArgs
from kernels_sm70.hyper_connection.checks import (
    WHERE,
    address,
    check_down,
    check_norm,
    storage_of,
    tiles_of,
)
from kernels_sm70.hyper_connection.launch import Plan


def fits(hidden: int, arch: str) -> bool:
    """Whether the form exists here: clusters, and a row of exactly eight slices."""
    return hidden == HIDDEN and arch_number(arch) >= 90


def plan_combine_down(
    residual: Any,
    block: Any,
    injection: Any,
    norm_weight: Any,
    weight: Any,
    *,
    combined: Any,
    normed: Any,
    lora: Any,
    logits: Any,
    eps: float,
    arch: str,
    row_tiles: int = 2,
    hits: int = 0,
) -> Plan:
    """combine + norm + down + inject. `injection` and `logits` may be None; `block` may not."""
    check_norm(residual, block, injection, norm_weight, combined)
    check_down(normed, weight, lora, logits)
    (rows, depth), storage = residual.shape, storage_of(residual)
    hidden, lora_rows = depth // STREAMS, lora.shape[1]
    extra = 0 if logits is None else logits.shape[1]
    if block is None or not fits(hidden, arch) or not lora.is_contiguous():
        raise refuse(
            WHERE,
            what="one-launch combine + down",
            expected=f"a block, packed lora, hidden {HIDDEN} and sm_90",
            found=f"block {block is not None}, hidden {hidden}, {arch}",
            remedy="plan the two launches",
        )
    spec = SPECS[f"ks_hc_combine_down{row_tiles}_{storage}_t{tiles_of(rows)}"]
    args = CombineDownArgs(
        *(address(t) for t in (residual, block, injection, norm_weight, weight)),
        *(address(t) for t in (combined, normed, lora, logits)),
        hits or None,
        row_stride(residual),
        row_stride(block),
        0 if injection is None else row_stride(injection),
        rows,
        hidden,
        hidden if norm_weight.numel() == depth else 0,
        lora_rows,
        extra,
        eps,
    )
    grid = (CLUSTER, -(-(lora_rows + extra) // (16 * row_tiles)), 1)
    geometry = runtime.Geometry(grid, spec.threads, spec.dynamic_shared(arch), cluster=CLUSTER)
    keeps = (residual, block, injection, norm_weight, weight, combined, normed, lora, logits)
    return Plan(spec.entry, args, geometry, keeps)
