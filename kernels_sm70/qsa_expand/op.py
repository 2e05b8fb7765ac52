# SPDX-License-Identifier: Apache-2.0
"""The torch operation kernels_sm70::qsa_expand and the choice between it and the original route."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernels_sm70 import counters, library
from kernels_sm70.contract import ContractError
from kernels_sm70.qsa_expand import BLOCKS, RATIO, launch, reference

HIT = "qsa_expand.hit"
REJECTED = "qsa_expand.rejected"
REASONS = ("geometry", "contract")
ROUTES = (HIT, REJECTED, *(f"qsa_expand.fallback.{reason}" for reason in REASONS))


def _cuda(
    blocks: torch.Tensor, positions: torch.Tensor, visible: torch.Tensor, out: torch.Tensor
) -> None:
    launch.check(blocks, positions, visible, out)
    device = blocks.device
    launch.run(
        blocks,
        positions,
        visible,
        out,
        hits=counters.row(HIT, device).data_ptr(),
        rejected=counters.row(REJECTED, device).data_ptr(),
    )


def _cpu(
    blocks: torch.Tensor, positions: torch.Tensor, visible: torch.Tensor, out: torch.Tensor
) -> None:
    launch.check(blocks, positions, visible, out)
    counters.count(HIT, blocks.shape[0], blocks.device)
    for position in positions.tolist():
        if position > reference.LARGEST - 1:
            counters.count(REJECTED, 0, blocks.device)
    out.copy_(reference.expand(blocks, positions, visible))


def _fake(*_: object) -> None:
    """Writes `out` in place: there is nothing to allocate."""


library.define(
    "qsa_expand(Tensor blocks, Tensor positions, Tensor visible, Tensor(a!) out) -> ()",
    cuda=_cuda,
    cpu=_cpu,
    fake=_fake,
)


def expand_or(
    original: Callable[..., None],
    block_indices: torch.Tensor,
    query_positions: torch.Tensor,
    visible_blocks: torch.Tensor,
    compress_ratio: int,
    token_topk: int,
    out: torch.Tensor,
) -> None:
    """vLLM's `expand_qsa_block_indices`, by the kernel where its contract holds; always counted.

    The choice is made from shapes and layout only, so that a graph capture and its replays agree.
    """
    positions = query_positions.view(-1) if query_positions.is_contiguous() else query_positions
    reason = None
    if (compress_ratio, token_topk) != (RATIO, RATIO * BLOCKS):
        reason = "geometry"
    else:
        try:
            launch.check(block_indices, positions, visible_blocks, out)
        except ContractError:
            reason = "contract"
    if reason is None:
        torch.ops.kernels_sm70.qsa_expand(block_indices, positions, visible_blocks, out)
        return
    counters.count(f"qsa_expand.fallback.{reason}", block_indices.shape[0], block_indices.device)
    original(block_indices, query_positions, visible_blocks, compress_ratio, token_topk, out)
