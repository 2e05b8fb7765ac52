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


class _Sets:
    """Per set: the state, its page list, its token indices and its attention inputs."""

    def __init__(self, device: torch.device, sets: int, *, rows: int, storage: torch.dtype) -> None:
        positions = positions_at(8192, rows)
        integers = {"dtype": torch.int32, "device": device}
        self.states = [
            synthetic.state(positions, storage, seed=i, device=device) for i in range(sets)
        ]
        self.lists = [torch.empty(rows, WIDTH, **integers) for _ in range(sets)]
        self.tokens = [torch.empty(rows, EXPANDED, **integers) for _ in range(sets)]
        self.made = []
        for index, (selected, cache, q, gate) in enumerate(self.states):
            page4.run(selected, self.lists[index])
            blocks, positions_, visible = selected.blocks, selected.positions, selected.visible
            expand.run(blocks, positions_, visible, self.tokens[index])
            self.made.append(synthetic.inputs(cache, q, gate, self.lists[index]))
        self.buffers = launch.allocate(self.made[0])

    def ours(self, index: int) -> torch.Tensor:
        """The attention alone."""
        return launch.run(self.made[index], self.buffers)

    def with_list(self, index: int) -> torch.Tensor:
        """The page list and the attention."""
        page4.run(self.states[index][0], self.lists[index])
        return self.ours(index)

    def load_vllm(self) -> Runner:
        """vLLM's attention over the token indices, into the same output."""
        from vllm.models.qwen4_exp.nvidia.ops.qsa import qsa_sparse_paged_attention

        def theirs(index: int) -> object:
            selected, cache, q, gate = self.states[index]
            k, v = cache[:, :, None, :DIM], cache[:, :, None, DIM:]
            table, requests = selected.block_table, selected.requests
            return qsa_sparse_paged_attention(
                q,
                k,
                v,
                self.tokens[index],
                table,
                requests,
                False,
                self.buffers.out,
                output_gate=gate,
            )

        return theirs

    def agrees(self) -> str | None:
        """How vLLM's output of set 0, still in the buffer, differs from ours."""
        theirs = self.buffers.out.clone()
        error = relative_l2(theirs, self.ours(0))
        return None if error < 1e-2 else f"relative L2 {error:.1e}"


def _prepare(
    device: torch.device, sets: int, *, rows: int, storage: torch.dtype
) -> Mapping[str, Runner | Absent]:
    made = _Sets(device, sets, rows=rows, storage=storage)
    runners: dict[str, Runner | Absent] = {
        "split KV": made.ours,
        "page list and split KV": made.with_list,
    }
    if storage != torch.bfloat16:
        return runners | {VLLM: Absent("vLLM's QSA attention takes bfloat16 only")}
    return runners | {VLLM: optional.baseline(made.load_vllm, agrees=made.agrees)}


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
