# SPDX-License-Identifier: Apache-2.0
"""Seeded attention inputs over a paged cache whose token row is K then V, and their relocation."""

from __future__ import annotations

import torch

from kernels_sm70.qsa_attention import DIM, HEADS
from kernels_sm70.qsa_attention.launch import Inputs
from kernels_sm70.qsa_page4 import launch as page4
from kernels_sm70.qsa_page4 import synthetic as page4_inputs


def state(
    positions: list[int],
    storage: torch.dtype,
    *,
    page_tokens: int = 16,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> tuple[page4.Inputs, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(page-list inputs, cache [N, P, 512], q, gate) for one request a row."""
    selected = page4_inputs.inputs(positions, page_tokens=page_tokens, seed=seed, device=device)
    generator = torch.Generator(device=device).manual_seed(seed)
    shape = (selected.physical_pages, page_tokens, 2 * DIM)
    cache = torch.empty(shape, dtype=storage, device=device).normal_(generator=generator)
    q, gate = (
        torch.empty(len(positions), HEADS, DIM, dtype=storage, device=device).normal_(
            generator=generator
        )
        for _ in range(2)
    )
    return selected, cache, q * 2, gate


def moved_cache(cache: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
    """The cache after page p went to page to[p]."""
    moved = torch.empty_like(cache)
    moved[to] = cache
    return moved


def inputs(cache: torch.Tensor, q: torch.Tensor, gate: torch.Tensor, pages: torch.Tensor) -> Inputs:
    """Attention inputs over the two halves of the cache."""
    return Inputs(q, cache[..., :DIM], cache[..., DIM:], gate, pages)
