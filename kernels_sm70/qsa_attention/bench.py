# SPDX-License-Identifier: Apache-2.0
"""Timing of the split-KV attention, with and without making its list, against vLLM's Triton
route."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from kernels_sm70.bench import optional
from kernels_sm70.bench.harness import Absent, Case, Runner
from kernels_sm70.gpu_checks import relative_l2
from kernels_sm70.qsa_attention import DIM, floor_bytes, launch, synthetic
from kernels_sm70.qsa_expand import WIDTH as EXPANDED
from kernels_sm70.qsa_expand import launch as expand
from kernels_sm70.qsa_expand.synthetic import positions_at
from kernels_sm70.qsa_page4 import WIDTH
from kernels_sm70.qsa_page4 import launch as page4

VLLM = "vLLM Triton"


def _prepare(
    device: torch.device, sets: int, *, rows: int, storage: torch.dtype
) -> Mapping[str, Runner | Absent]:
    positions = positions_at(8192, rows)
    states = [synthetic.state(positions, storage, seed=i, device=device) for i in range(sets)]
    lists = [torch.empty(rows, WIDTH, dtype=torch.int32, device=device) for _ in range(sets)]
    tokens = [torch.empty(rows, EXPANDED, dtype=torch.int32, device=device) for _ in range(sets)]
    made = []
    for (selected, cache, q, gate), pages, expanded in zip(states, lists, tokens, strict=True):
        page4.run(selected, pages)
        expand.run(selected.blocks, selected.positions, selected.visible, expanded)
        made.append(synthetic.inputs(cache, q, gate, pages))
    buffers = launch.allocate(made[0])

    def with_list(index: int) -> object:
        page4.run(states[index][0], lists[index])
        return launch.run(made[index], buffers)

    runners: dict[str, Runner | Absent] = {
        "split KV": lambda index: launch.run(made[index], buffers),
        "page list and split KV": with_list,
    }
    if storage != torch.bfloat16:
        return runners | {VLLM: Absent("vLLM's QSA attention takes bfloat16 only")}

    def load() -> Runner:
        from vllm.models.qwen4_exp.nvidia.ops.qsa import qsa_sparse_paged_attention

        def theirs(index: int) -> object:
            selected, cache, q, gate = states[index]
            k, v = cache[:, :, None, :DIM], cache[:, :, None, DIM:]
            table, requests = selected.block_table, selected.requests
            return qsa_sparse_paged_attention(
                q, k, v, tokens[index], table, requests, False, buffers.out, output_gate=gate
            )

        return theirs

    def agrees() -> str | None:
        theirs = buffers.out.clone()
        error = relative_l2(theirs, launch.run(made[0], buffers))
        return None if error < 1e-2 else f"relative L2 {error:.1e}"

    return runners | {VLLM: optional.baseline(load, agrees=agrees)}


CASES = tuple(
    Case(
        operation="qsa_attention",
        label=f"M{rows} 8K {str(storage).removeprefix('torch.')}",
        bytes=floor_bytes(rows),
        prepare=partial(_prepare, rows=rows, storage=storage),
    )
    for rows, storage in (
        (4, torch.bfloat16),
        (8, torch.bfloat16),
        (16, torch.bfloat16),
        (16, torch.float16),
    )
)
