# SPDX-License-Identifier: Apache-2.0
"""Seeded selections: distinct blocks in no order, -1 past the visible ones, positions by
residue."""

from __future__ import annotations

import torch

from kernels_sm70.qsa_expand import BLOCKS

Selection = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def selection(positions: list[int], *, seed: int = 0, wide: bool = True) -> Selection:
    """(blocks [M, 512], positions [M], visible [M]) on the CPU, as the indexer's top k leaves
    them."""
    generator = torch.Generator().manual_seed(seed)
    visible = torch.tensor([max(p + 1, 0) // 4 for p in positions], dtype=torch.int32)
    blocks = torch.full((len(positions), BLOCKS), -1, dtype=torch.int32)
    for row, seen in enumerate(visible.tolist()):
        chosen = torch.randperm(seen, generator=generator)[:BLOCKS]
        blocks[row, : len(chosen)] = chosen.int()
    return blocks, torch.tensor(positions, dtype=torch.int64 if wide else torch.int32), visible


def positions_at(context: int, rows: int) -> list[int]:
    """`rows` positions near the end of a context, cycling through the four residues."""
    return [context - 1 - 5 * row - row % 4 for row in range(rows)]


def on_device(selected: Selection, device: torch.device) -> Selection:
    """The same selection there."""
    blocks, positions, visible = selected
    return blocks.to(device), positions.to(device), visible.to(device)
