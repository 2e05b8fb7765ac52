# SPDX-License-Identifier: Apache-2.0
"""The launches of one boundary, in each form that exists, and which form the operation takes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels_sm70.hyper_connection import HIDDEN, launch
from kernels_sm70.hyper_connection.launch_fused import fits, plan_combine_down

COUNTER, CLUSTERED, FUSED1, FUSED2 = "arrival counter", "clustered", "one-launch 1", "one-launch 2"


@dataclass(slots=True)
class Operands:
    """What a boundary reads: `block` and `injection` may be None, the weights may not."""

    residual: torch.Tensor
    block: torch.Tensor | None
    injection: torch.Tensor | None
    norm_weight: torch.Tensor
    down: torch.Tensor
    up: torch.Tensor


@dataclass(slots=True)
class Results:
    """What a boundary writes: `combined` is None without a block, `logits` on the final mixer."""

    combined: torch.Tensor | None
    normed: torch.Tensor
    lora: torch.Tensor
    logits: torch.Tensor | None
    mixed: torch.Tensor


def forms(arch: str, hidden: int = HIDDEN) -> tuple[str, ...]:
    """The forms of combine + norm + down that exist for an architecture and a hidden size."""
    return (COUNTER, CLUSTERED, FUSED1, FUSED2) if fits(hidden, arch) else (COUNTER,)


def preferred(rows: int, hidden: int, arch: str) -> str:
    """The form the operation takes: the fastest one measured (the table in the README).

    Up to eight rows one launch saves more than its clusters' repeated reads of R and B cost.
    """
    if not fits(hidden, arch):
        return COUNTER
    return FUSED2 if rows <= 8 else CLUSTERED


def plan_chain(
    given: Operands, out: Results, *, eps: float, arch: str, form: str, hits: int = 0
) -> tuple[launch.Plan, ...]:
    """The checked launches of one boundary; `hits` is counted by the last of them.

    Without a block there is nothing to combine: the one-launch forms become the clustered one.

    Raises:
        ContractError: outside the contract, or for a form that does not exist here.
    """
    last = launch.plan_up(out.lora, given.up, out.normed, out.mixed, arch=arch, hits=hits)
    first = (given.residual, given.block, given.injection, given.norm_weight)
    if form in (FUSED1, FUSED2) and given.block is not None:
        fused = plan_combine_down(
            *(*first, given.down),
            combined=out.combined,
            normed=out.normed,
            lora=out.lora,
            logits=out.logits,
            eps=eps,
            arch=arch,
            row_tiles=1 if form == FUSED1 else 2,
        )
        return fused, last
    workspace = None
    if form == COUNTER:
        extra = 0 if out.logits is None else out.logits.shape[1]
        workspace = launch.down_workspace(
            *(given.residual.shape[0], given.residual.shape[1], out.lora.shape[1] + extra),
            device=given.residual.device,
        )
    # The first kernel zeroes the arrival counters, so the chain needs no memset of its own.
    arrivals = None if workspace is None else workspace[1]
    norm = launch.plan_norm(*first, out.combined, out.normed, eps=eps, arrivals=arrivals)
    down = launch.plan_down(
        out.normed, given.down, out.lora, out.logits, arch=arch, workspace=workspace
    )
    return norm, down, last
