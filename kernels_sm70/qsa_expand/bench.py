# SPDX-License-Identifier: Apache-2.0
"""Timing of the expansion against vLLM's Triton kernel and a torch composition."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from kernels_sm70.bench import optional
from kernels_sm70.bench.harness import Absent, Case, Runner, Target
from kernels_sm70.qsa_expand import BLOCKS, RATIO, WIDTH, floor_bytes, launch, synthetic

OURS, VLLM, TORCH = "kernel", "vLLM Triton", "torch operations"
CONTEXTS = {"8K": 8192, "128K": 131072, "256K": 262144}


def _torch(
    blocks: torch.Tensor, positions: torch.Tensor, visible: torch.Tensor, out: torch.Tensor
) -> None:
    """What the expansion costs as tensor operations."""
    columns = torch.arange(WIDTH - 1, device=blocks.device)
    complete = visible.clamp(0, BLOCKS)[:, None] * RATIO
    expanded = (
        blocks.repeat_interleave(RATIO, 1)[:, : WIDTH - RATIO] * RATIO
        + columns[: WIDTH - RATIO] % RATIO
    )
    expanded = torch.nn.functional.pad(expanded, (0, RATIO - 1))
    following = (positions + 1)[:, None]
    start = following // RATIO * RATIO
    tail = start + columns - complete
    token = torch.where(columns < complete, expanded, torch.where(tail < following, tail, -1))
    out[:, :-1] = token
    out[:, -1:] = complete + following - start


def _prepare(
    device: torch.device, sets: int, *, rows: int, context: int
) -> Mapping[str, Runner | Absent]:
    positions = synthetic.positions_at(context, rows)
    made = [synthetic.selection(positions, seed=i) for i in range(sets)]
    inputs = [synthetic.on_device(one, device) for one in made]
    outs = [torch.empty(rows, WIDTH, dtype=torch.int32, device=device) for _ in range(sets)]

    def load() -> Runner:
        from vllm.models.qwen4_exp.nvidia.ops.qsa_indexer import expand_qsa_block_indices

        return lambda i: expand_qsa_block_indices(*inputs[i], RATIO, RATIO * BLOCKS, outs[i])

    def agrees() -> str | None:
        theirs = outs[0].clone()
        launch.run(*inputs[0], outs[0])
        different = int((theirs != outs[0]).sum())
        return f"{different} entries" if different else None

    return {
        OURS: lambda i: launch.run(*inputs[i], outs[i]),
        VLLM: optional.baseline(load, agrees=agrees),
        TORCH: lambda i: _torch(*inputs[i], outs[i]),
    }


CASES = tuple(
    Case(
        operation="qsa_expand",
        label=f"M{rows} {name}",
        bytes=floor_bytes(rows),
        prepare=partial(_prepare, rows=rows, context=context),
        targets={OURS: Target(min_speedup=1.0, baseline=VLLM)},
    )
    for rows in (4, 8, 16)
    for name, context in CONTEXTS.items()
)
