# SPDX-License-Identifier: Apache-2.0
"""Route vLLM's expand_qsa_block_indices through kernels_sm70::qsa_expand.

The indexer imports the function inside its forward, so replacing the module's attribute is enough.
Integer work only: the selected tokens keep every bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kernels_sm70.vllm_hooks.patching import Patch, Target

ROUTE = "qsa_expand"
OPERATIONS: tuple[str, ...] = ("qsa_expand",)
COUNTERS: tuple[str, ...] = (
    f"{ROUTE}.hit",
    f"{ROUTE}.rejected",
    f"{ROUTE}.fallback.geometry",
    f"{ROUTE}.fallback.contract",
)
INDEXER = "vllm.models.qwen4_exp.nvidia.ops.qsa_indexer"
PARAMETERS = (
    "block_indices",
    "query_positions",
    "visible_blocks",
    "compress_ratio",
    "token_topk",
    "out",
)

Function = Callable[..., Any]


def patches(*, architecture: str) -> tuple[Patch, ...]:
    """The indexer's expansion."""
    del architecture
    target = Target(INDEXER, "expand_qsa_block_indices", PARAMETERS)
    return (Patch(ROUTE, target, _make_expand),)


def modules(model: Any) -> Iterator[Any]:
    """The sparse attention layers' indexers."""
    for module in model.modules():
        if type(module).__name__ == "QSAIndexer":
            yield module


def prepare(module: Any, device: Any) -> None:
    """Load the kernel: one call on two empty rows."""
    import torch

    from kernels_sm70.qsa_expand import BLOCKS, RATIO, WIDTH

    if (module.compress_ratio, module.token_topk) != (RATIO, RATIO * BLOCKS):
        return
    rows = torch.zeros(2, dtype=torch.int32, device=device)
    blocks = torch.zeros(2, BLOCKS, dtype=torch.int32, device=device)
    out = torch.empty(2, WIDTH, dtype=torch.int32, device=device)
    from kernels_sm70.qsa_expand import op

    del op  # importing it defines the operation
    torch.ops.kernels_sm70.qsa_expand(blocks, rows, rows.clone(), out)


def _make_expand(original: Function) -> Function:
    def expand_qsa_block_indices(
        block_indices: Any,
        query_positions: Any,
        visible_blocks: Any,
        compress_ratio: int,
        token_topk: int,
        out: Any,
    ) -> None:
        from kernels_sm70.qsa_expand import op

        op.expand_or(
            original,
            block_indices,
            query_positions,
            visible_blocks,
            compress_ratio,
            token_topk,
            out,
        )

    return expand_qsa_block_indices
