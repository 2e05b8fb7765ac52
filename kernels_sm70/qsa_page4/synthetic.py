# SPDX-License-Identifier: Apache-2.0
"""Seeded page-list inputs, and the relocation of their KV pages."""

from __future__ import annotations

import dataclasses

import torch

from kernels_sm70.qsa_expand.synthetic import selection
from kernels_sm70.qsa_page4.launch import Inputs


def inputs(
    positions: list[int],
    *,
    page_tokens: int = 16,
    spare_pages: int = 3,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Inputs:
    """One request a row, pages dealt at random; the table covers the longest row."""
    blocks, places, visible = selection(positions, seed=seed)
    width = max(positions) // page_tokens + 1
    physical = len(positions) * width + spare_pages
    generator = torch.Generator().manual_seed(seed + 1)
    table = torch.randperm(physical, generator=generator)[: len(positions) * width]
    return Inputs(
        blocks.to(device),
        places.to(device),
        visible.to(device),
        torch.arange(len(positions), dtype=torch.int32, device=device),
        table.view(len(positions), width).int().to(device),
        page_tokens,
        physical,
    )


def relocated(given: Inputs, *, seed: int) -> tuple[Inputs, torch.Tensor]:
    """The same logical state on other physical pages, and where each page went: new[to[p]] =
    old[p]."""
    to = torch.randperm(given.physical_pages, generator=torch.Generator().manual_seed(seed))
    to = to.to(given.block_table.device)
    moved = to[given.block_table.long()].int()
    return dataclasses.replace(given, block_table=moved), to
