# SPDX-License-Identifier: Apache-2.0
"""Timing of the page list against the same result by torch operations (vLLM has no such step)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from kernels_sm70.bench.harness import Absent, Case, Runner
from kernels_sm70.qsa_expand.synthetic import positions_at
from kernels_sm70.qsa_page4 import WIDTH, floor_bytes, launch, synthetic

CONTEXTS = {"8K": 8192, "256K": 262144}


def _torch(inputs: launch.Inputs, out: torch.Tensor) -> None:
    """Sort, look up, append the tail; rejections are not counted."""
    per_page = inputs.page_tokens // 4
    last = torch.iinfo(torch.int32).max
    blocks = torch.where(inputs.blocks < 0, last, inputs.blocks).sort(dim=1).values
    following = inputs.positions + 1
    tail = following % 4
    opened = torch.where(tail > 0, following // 4, last)[:, None]
    blocks = torch.cat([blocks, opened.int()], 1)
    page = (blocks // per_page).clamp_max(inputs.block_table.shape[1] - 1)
    table = inputs.block_table[inputs.requests.long()]
    found = table.gather(1, page.long()) * per_page + blocks % per_page
    out[:, :513] = torch.where(blocks == last, -1, found)
    out[:, 513] = (blocks != last).sum(1)
    out[:, 514] = tail
    out[:, 515] = 0


def _prepare(
    device: torch.device, sets: int, *, rows: int, context: int
) -> Mapping[str, Runner | Absent]:
    positions = positions_at(context, rows)
    made = [synthetic.inputs(positions, seed=i, device=device) for i in range(sets)]
    outs = [torch.empty(rows, WIDTH, dtype=torch.int32, device=device) for _ in range(sets)]
    return {
        "kernel": lambda i: launch.run(made[i], outs[i]),
        "torch operations": lambda i: _torch(made[i], outs[i]),
    }


CASES = tuple(
    Case(
        operation="qsa_page4",
        label=f"M{rows} {name}",
        bytes=floor_bytes(rows),
        prepare=partial(_prepare, rows=rows, context=context),
    )
    for rows in (4, 8, 16)
    for name, context in CONTEXTS.items()
)
