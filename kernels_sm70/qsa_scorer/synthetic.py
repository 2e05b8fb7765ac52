# SPDX-License-Identifier: Apache-2.0
"""Seeded scorer inputs: pages dealt at random among the requests; and the relocation of pages."""

from __future__ import annotations

import dataclasses

import torch

from kernels_sm70.qsa_scorer import DIM, HEADS, RATIO
from kernels_sm70.qsa_scorer.launch import Inputs


def inputs(
    contexts: list[int],
    storage: torch.dtype,
    *,
    page_keys: int = 196,
    capacity: int | None = None,
    rows_per_request: int = 1,
    spare_pages: int = 2,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> Inputs:
    """One request a context (tokens); the table is as wide as `capacity` tokens need.

    The last of a request's rows sees the whole context, each earlier one a block less. Table
    entries
    past a request's own pages are -1.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    keys_of = [context // RATIO for context in contexts]
    pages_of = [-(-keys // page_keys) for keys in keys_of]
    width = max(-(-(capacity or max(contexts)) // (RATIO * page_keys)), max(pages_of), 1)
    physical = sum(pages_of) + spare_pages
    dealt = torch.randperm(physical, generator=torch.Generator().manual_seed(seed)).int()
    table = torch.full((len(contexts), width), -1, dtype=torch.int32)
    start = 0
    for request, pages in enumerate(pages_of):
        table[request, :pages] = dealt[start : start + pages]
        start += pages
    keys = torch.empty(physical, page_keys, DIM, dtype=storage, device=device)
    keys.normal_(generator=generator)
    q = torch.empty(len(contexts) * rows_per_request, HEADS, DIM, dtype=storage, device=device)
    q.normal_(generator=generator)
    visible = torch.tensor(
        [max(keys - back, 0) for keys in keys_of for back in reversed(range(rows_per_request))]
    )
    return Inputs(q, keys, table.to(device), visible.int().to(device), rows_per_request)


def relocated(given: Inputs, *, seed: int) -> Inputs:
    """The same logical state with every key page moved elsewhere."""
    count = int(given.keys.shape[0])
    to = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    to = to.to(given.keys.device)
    keys = torch.empty_like(given.keys)
    keys[to] = given.keys
    there = given.page_table >= 0
    table = torch.where(there, to[given.page_table.clamp_min(0).long()], -1).int()
    return dataclasses.replace(given, keys=keys, page_table=table)
