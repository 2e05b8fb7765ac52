# SPDX-License-Identifier: Apache-2.0
"""Route the scores of vLLM's qsa_select_paged_decode through kernels_sm70::qsa_score.

vLLM's own top-k then reads them: it looks at the visible columns only, so the columns that the
kernel leaves unwritten are not seen. The indexer imports the function inside its forward, so
replacing the module's attribute is enough. Prefill keeps its own function.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from kernels_sm70.vllm_hooks.patching import Patch, Target
from kernels_sm70.vllm_hooks.qsa_expand import INDEXER, modules

__all__ = ["COUNTERS", "OPERATIONS", "ROUTE", "modules", "patches", "prepare"]

ROUTE = "qsa_scorer"
OPERATIONS: tuple[str, ...] = ("qsa_scorer",)
COUNTERS: tuple[str, ...] = (f"{ROUTE}.hit", f"{ROUTE}.fallback.contract")
PARAMETERS = (
    "q",
    "k_cache",
    "page_table",
    "visible_blocks",
    "token_topk",
    "compress_ratio",
    "decode_query_len",
    "block_indices",
)
TOPK_PARAMETERS = (
    "logits",
    "visible_blocks",
    "token_topk",
    "compress_ratio",
    "block_indices",
    "topk_workspace",
)

Function = Callable[..., Any]


def patches(*, architecture: str) -> tuple[Patch, ...]:
    """The decode selection; vLLM's top-k is only checked."""
    del architecture
    select = Target(INDEXER, "qsa_select_paged_decode", PARAMETERS)
    topk = Target(INDEXER, "_topk", TOPK_PARAMETERS)
    return (Patch(ROUTE, topk, None), Patch(ROUTE, select, _make_select))


def prepare(module: Any, device: Any) -> None:
    """Load the kernel: one call on a page of zeros that no row may see."""
    import torch

    from kernels_sm70.qsa_scorer import DIM, HEADS, op

    if (module.index_n_heads, module.index_head_dim) != (HEADS, DIM):
        return
    dtype = module.indexer_dtype
    if dtype not in (torch.float16, torch.bfloat16):
        return
    del op  # importing it defines the operation
    q = torch.zeros(2, HEADS, DIM, dtype=dtype, device=device)
    keys = torch.zeros(1, 4, 1, DIM, dtype=dtype, device=device)
    table = torch.zeros(2, 1, dtype=torch.int32, device=device)
    visible = torch.zeros(2, dtype=torch.int32, device=device)
    torch.ops.kernels_sm70.qsa_score(q, keys, table, visible, 1)


def _make_select(original: Function) -> Function:
    def qsa_select_paged_decode(
        q: Any,
        k_cache: Any,
        page_table: Any,
        visible_blocks: Any,
        token_topk: int,
        compress_ratio: int,
        decode_query_len: int,
        block_indices: Any,
    ) -> None:
        from kernels_sm70.qsa_scorer import op

        op.select_or(
            original,
            import_module(INDEXER)._topk,
            q,
            k_cache,
            page_table,
            visible_blocks,
            token_topk,
            compress_ratio,
            decode_query_len,
            block_indices,
        )

    return qsa_select_paged_decode
