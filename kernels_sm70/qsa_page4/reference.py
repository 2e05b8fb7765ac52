# SPDX-License-Identifier: Apache-2.0
"""The oracle of the page list: sort the logical blocks, then look each up. No rounding point."""

from __future__ import annotations

import torch

from kernels_sm70.qsa_page4 import BLOCKS, RATIO, WIDTH


def physical(table: list[int], block: int, *, page_tokens: int, physical_pages: int) -> int:
    """The physical 4-token page of a logical block, or -1."""
    per_page = page_tokens // RATIO
    if block < 0 or block // per_page >= len(table):
        return -1
    page = table[block // per_page]
    return page * per_page + block % per_page if 0 <= page < physical_pages else -1


def row(
    blocks: list[int],
    position: int,
    visible: int,
    table: list[int],
    *,
    page_tokens: int,
    physical_pages: int,
) -> list[int]:
    """One row of 516."""

    def find(block: int) -> int:
        return physical(table, block, page_tokens=page_tokens, physical_pages=physical_pages)

    chosen = blocks[: min(max(visible, 0), BLOCKS)]
    pages = [page for page in map(find, sorted(chosen)) if page >= 0]
    rejected = len(chosen) - len(pages)
    following = max(position, -1) + 1
    tail = following % RATIO
    if tail:
        page = find(following // RATIO)
        rejected += page < 0
        tail = tail if page >= 0 else 0
        pages += [page] if page >= 0 else []
    return [*pages, *[-1] * (BLOCKS + 1 - len(pages)), len(pages), tail, rejected]


def pages(
    blocks: torch.Tensor,
    positions: torch.Tensor,
    visible: torch.Tensor,
    requests: torch.Tensor,
    block_table: torch.Tensor,
    *,
    page_tokens: int,
    physical_pages: int,
) -> torch.Tensor:
    """All rows: [M, 516] int32, on the CPU."""
    tables = block_table.tolist()
    inputs = zip(
        blocks.tolist(), positions.tolist(), visible.tolist(), requests.tolist(), strict=True
    )
    found = [
        row(
            chosen,
            position,
            seen,
            tables[request] if 0 <= request < len(tables) else [],
            page_tokens=page_tokens,
            physical_pages=physical_pages,
        )
        for chosen, position, seen, request in inputs
    ]
    return torch.tensor(found, dtype=torch.int32).view(-1, WIDTH)
