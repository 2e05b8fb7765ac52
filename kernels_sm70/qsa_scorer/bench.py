# SPDX-License-Identifier: Apache-2.0
"""Timing of the scorer's schedules against vLLM's Triton kernel, tables sized for 256K tokens.

At M4 and 8K the sixteen sets hold 34 MB together, which an H200's L2 keeps; that holds for every
candidate alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from kernels_sm70.bench import optional
from kernels_sm70.bench.harness import Absent, Case, Runner, Target
from kernels_sm70.gpu_checks import relative_l2
from kernels_sm70.qsa_scorer import floor_bytes, launch, synthetic
from kernels_sm70.qsa_scorer.launch import Inputs, Schedule

CONTEXTS = {"8K": 8192, "128K": 131072, "256K": 262144}
CAPACITY = 262144
VLLM = "vLLM Triton"


def _vllm_score(indexer: Any, inputs: Inputs, scores: torch.Tensor) -> None:
    """The scoring launch of vLLM's qsa_select_paged_decode, without its top k."""
    requests, width = inputs.page_table.shape
    tile = indexer._DECODE_BLOCK_N
    each = indexer._decode_tiles_per_program(requests, inputs.columns)
    indexer._qsa_mqa_paged_uniform_kernel[(requests, -(-inputs.columns // (tile * each)))](
        inputs.q,
        inputs.keys,
        inputs.page_table,
        inputs.visible,
        scores,
        *inputs.q.stride()[:-1],
        *inputs.keys.stride()[:2],
        *inputs.page_table.stride()[:-1],
        *scores.stride()[:-1],
        PAGE_SIZE=inputs.keys.shape[1],
        PAGE_TABLE_WIDTH=width,
        NUM_HEADS=inputs.q.shape[1],
        HEAD_DIM=inputs.q.shape[2],
        DECODE_QUERY_LEN=inputs.rows_per_request,
        BLOCK_N=tile,
        TILES_PER_PROG=each,
        STAGES=2,
        num_warps=2,
    )


def _prepare(
    device: torch.device, sets: int, *, rows: int, context: int, storage: torch.dtype
) -> Mapping[str, Runner | Absent]:
    made = [
        synthetic.inputs([context] * rows, storage, capacity=CAPACITY, device=device, seed=i)
        for i in range(sets)
    ]
    scores = torch.empty(rows, made[0].columns, dtype=torch.float32, device=device)

    def ours(index: int, *, schedule: Schedule) -> object:
        return launch.run(made[index], scores, schedule=schedule)

    runners: dict[str, Runner | Absent] = {
        schedule.value: partial(ours, schedule=schedule) for schedule in Schedule
    }

    def load() -> Runner:
        from vllm.models.qwen4_exp.nvidia.ops import qsa_indexer

        return lambda index: _vllm_score(qsa_indexer, made[index], scores)

    def agrees() -> str | None:
        seen = torch.arange(scores.shape[1], device=device) < made[0].visible[:, None]
        theirs = scores[seen]
        error = relative_l2(theirs, launch.run(made[0], scores)[seen])
        return None if error < 1e-4 else f"relative L2 {error:.1e}"

    return runners | {VLLM: optional.baseline(load, agrees=agrees)}


def _case(rows: int, name: str, storage: torch.dtype) -> Case:
    return Case(
        operation="qsa_scorer",
        label=f"M{rows} {name} {str(storage).removeprefix('torch.')}",
        bytes=floor_bytes(rows, CONTEXTS[name]),
        prepare=partial(_prepare, rows=rows, context=CONTEXTS[name], storage=storage),
        targets={Schedule.LIVE.value: Target(min_speedup=1.0, baseline=VLLM)},
    )


CASES = (
    *(_case(rows, name, torch.bfloat16) for rows in (4, 8, 16) for name in CONTEXTS),
    *(_case(16, name, torch.float16) for name in CONTEXTS),
)
