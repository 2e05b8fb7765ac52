# SPDX-License-Identifier: Apache-2.0
"""The torch operation kernels_sm70::qsa_score and the choice between it and the original route."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels_sm70 import counters, library
from kernels_sm70.contract import ContractError
from kernels_sm70.qsa_scorer import launch, reference
from kernels_sm70.qsa_scorer.launch import Inputs

HIT = "qsa_scorer.hit"
REASONS = ("contract",)
ROUTES = (HIT, *(f"qsa_scorer.fallback.{reason}" for reason in REASONS))
TOPK_WORKSPACE_BYTES = 1024 * 1024


def _cuda(
    q: torch.Tensor,
    keys: torch.Tensor,
    page_table: torch.Tensor,
    visible: torch.Tensor,
    rows_per_request: int,
) -> torch.Tensor:
    inputs = Inputs(q, keys, page_table, visible, rows_per_request)
    scores = _fake(q, keys, page_table)
    launch.check(inputs, scores)
    return launch.run(inputs, scores, hits=counters.row(HIT, q.device).data_ptr())


def _cpu(
    q: torch.Tensor,
    keys: torch.Tensor,
    page_table: torch.Tensor,
    visible: torch.Tensor,
    rows_per_request: int,
) -> torch.Tensor:
    scores = _fake(q, keys, page_table)
    launch.check(Inputs(q, keys, page_table, visible, rows_per_request), scores)
    counters.count(HIT, q.shape[0], q.device)
    found = reference.scores(q, keys, page_table, visible, rows_per_request=rows_per_request)
    return scores.copy_(found)


def _fake(
    q: torch.Tensor, keys: torch.Tensor, page_table: torch.Tensor, *_: object
) -> torch.Tensor:
    columns = page_table.shape[1] * keys.shape[1]
    return q.new_empty((q.shape[0], columns), dtype=torch.float32)


library.define(
    "qsa_score(Tensor q, Tensor keys, Tensor page_table, Tensor visible, int rows_per_request) "
    "-> Tensor",
    cuda=_cuda,
    cpu=_cpu,
    fake=_fake,
)


def select_or(
    original: Callable[..., None],
    topk: Callable[..., Any],
    q: torch.Tensor,
    k_cache: torch.Tensor,
    page_table: torch.Tensor,
    visible_blocks: torch.Tensor,
    token_topk: int,
    compress_ratio: int,
    decode_query_len: int,
    block_indices: torch.Tensor,
) -> None:
    """vLLM's `qsa_select_paged_decode` with the scores by the kernel and `topk` (vLLM's `_topk`).

    Out of contract, `original` runs; every call is counted. Decided from shapes and layout only.
    """
    inputs = Inputs(q, k_cache, page_table, visible_blocks, decode_query_len)
    try:
        launch.check_inputs(inputs)
    except ContractError:
        counters.count("qsa_scorer.fallback.contract", q.shape[0], q.device)
        original(
            q,
            k_cache,
            page_table,
            visible_blocks,
            token_topk,
            compress_ratio,
            decode_query_len,
            block_indices,
        )
        return
    logits = torch.ops.kernels_sm70.qsa_score(
        q, k_cache, page_table, visible_blocks, decode_query_len
    )
    workspace = torch.empty(TOPK_WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)
    topk(logits, visible_blocks, token_topk, compress_ratio, block_indices, workspace)
