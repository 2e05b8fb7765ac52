# SPDX-License-Identifier: Apache-2.0
"""The oracle of the GDN split: slices. There is no rounding point; payloads must match bit for
bit.
"""

from __future__ import annotations

import torch


def split(qkvz: torch.Tensor, ba: torch.Tensor, qkv_width: int) -> tuple[torch.Tensor, ...]:
    """Return (qkv, z, b, a), each packed: qkvz [M, Q + Z] -> [M, Q], [M, Z]; ba [M, 2 B] -> [M, B]
    twice.
    """
    half = ba.shape[-1] // 2
    parts = (qkvz[:, :qkv_width], qkvz[:, qkv_width:], ba[:, :half], ba[:, half:])
    # clone, not contiguous: at M = 1 the slices count as contiguous and would alias their input.
    return tuple(part.clone(memory_format=torch.contiguous_format) for part in parts)
