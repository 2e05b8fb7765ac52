# SPDX-License-Identifier: Apache-2.0
"""The oracle of the expansion: plain integers, row by row. There is no rounding point."""

from __future__ import annotations

import torch

from kernels_sm70.qsa_expand import BLOCKS, RATIO, WIDTH

LARGEST = 2**31 - 1


def row(blocks: list[int], position: int, visible: int) -> list[int]:
    """One row of 2052: the expanded blocks, the tail of `position`, -1, and the count."""
    if position > LARGEST - 1:
        position, visible = -1, 0
    seen = min(max(visible, 0), BLOCKS)
    out: list[int] = []
    for block in blocks[:seen]:
        fits = block >= 0 and RATIO * block + RATIO - 1 <= LARGEST
        out += [RATIO * block + i if fits else -1 for i in range(RATIO)]
    following = max(position, -1) + 1
    out += range(following - following % RATIO, following)
    count = len(out)
    return [*out, *[-1] * (WIDTH - 1 - count), count]


def expand(blocks: torch.Tensor, positions: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """blocks [M, 512], positions [M], visible [M] -> [M, 2052] int32, on the CPU."""
    rows = zip(blocks.tolist(), positions.tolist(), visible.tolist(), strict=True)
    return torch.tensor([row(*values) for values in rows], dtype=torch.int32).view(-1, WIDTH)
