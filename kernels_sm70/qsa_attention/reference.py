# SPDX-License-Identifier: Apache-2.0
"""The fp64 oracle of the sparse attention; its two rounding points are the calls of `rounded`."""

from __future__ import annotations

import torch

from kernels_sm70.qsa_attention import DIM


def rounded(values: torch.Tensor, storage: torch.dtype) -> torch.Tensor:
    """f(): nearest even to `storage`, returned as float64."""
    return values.to(storage).double()


def tokens_of(row: torch.Tensor, page_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(page, offset) of each token a list row of 516 names, in the list's order."""
    pages, tail = int(row[513]), int(row[514])
    count = 4 * pages - (4 - tail if tail else 0)
    index = torch.arange(count, device=row.device)
    page4 = row[:513].long()[index // 4]
    per_page = page_tokens // 4
    return page4 // per_page, page4 % per_page * 4 + index % 4


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gate: torch.Tensor,
    pages: torch.Tensor,
    *,
    storage: torch.dtype,
) -> torch.Tensor:
    """q, gate [M, 6, 256]; k, v [N, P, 256]; pages [M, 516] -> [M, 6, 256] float64."""
    page_tokens = int(k.shape[1])
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    for row in range(q.shape[0]):
        page, offset = tokens_of(pages[row], page_tokens)
        o = torch.zeros(q.shape[1:], dtype=torch.float64, device=q.device)
        if len(page):
            keys, values = k[page, offset].double(), v[page, offset].double()
            weights = torch.softmax(q[row].double() @ keys.T * DIM**-0.5, dim=-1)
            o = weights @ values
        out[row] = rounded(rounded(o, storage) * torch.sigmoid(gate[row].double()), storage)
    return out
