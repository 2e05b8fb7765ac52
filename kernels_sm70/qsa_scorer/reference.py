# SPDX-License-Identifier: Apache-2.0
"""The fp64 oracle of the scorer. There is no rounding point: the output is float32."""

from __future__ import annotations

import torch


def scores(
    q: torch.Tensor,
    keys: torch.Tensor,
    page_table: torch.Tensor,
    visible: torch.Tensor,
    *,
    rows_per_request: int,
    unwritten: float = float("nan"),
) -> torch.Tensor:
    """q [M, 4, 128], keys [N, Pk, 128], page_table [R, W], visible [M] -> [M, W * Pk] float64.

    Columns a row may not see hold `unwritten`; keys without a page score -1.
    """
    keys = keys.reshape(keys.shape[0], keys.shape[1], keys.shape[-1])
    page_keys, columns = keys.shape[1], page_table.shape[1] * keys.shape[1]
    out = torch.full((q.shape[0], columns), unwritten, dtype=torch.float64, device=q.device)
    for request in range(page_table.shape[0]):
        rows = slice(request * rows_per_request, (request + 1) * rows_per_request)
        live = min(max(int(visible[rows].max()), 0), columns)
        if live == 0:
            continue
        pages = page_table[request, : -(-live // page_keys)].long()
        there = (pages >= 0) & (pages < keys.shape[0])
        gathered = keys[torch.where(there, pages, 0)].flatten(0, 1)[:live].double()
        products = torch.einsum("mhd,cd->mhc", q[rows].double(), gathered)
        total = torch.relu(products).sum(1)
        found = there.repeat_interleave(page_keys)[:live]
        total = torch.where(found, total, -1.0)
        seen = torch.arange(live, device=q.device) < visible[rows, None]
        out[rows, :live] = torch.where(seen, total, unwritten)
    return out
