# SPDX-License-Identifier: Apache-2.0
"""Seeded experts and routings for the checks and the bench: uniform, and skewed like captured
decode traffic."""

from __future__ import annotations

import torch

from kernels_sm70.moe_grouped import HIDDEN
from kernels_sm70.moe_grouped.experts import Experts

# With this spread of expert popularity, 4, 8 and 16 tokens of ten choices among 512 reach 32.6,
# 55.1 and 88.0 experts
# on average (100 seeds); the fork's captured traffic reached 35.7, 57.6 and 87.3.
CAPTURED_SPREAD = 1.8


def experts(
    kind: str,
    storage: torch.dtype,
    *,
    count: int,
    intermediate: int = 160,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> Experts:
    """Random experts whose layers keep unit variance roughly; `kind` is "nvfp4" or "plain"."""
    generator = torch.Generator(device=device).manual_seed(seed)
    shapes = ((count, 2 * intermediate, HIDDEN), (count, HIDDEN, intermediate))
    if kind == "plain":
        w13, w2 = (
            (
                torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
                * shape[2] ** -0.5
            ).to(storage)
            for shape in shapes
        )
        return Experts(w13, None, None, w2, None, None)
    packed, scales = [], []
    for shape in shapes:
        halved, blocks = (*shape[:2], shape[2] // 2), (*shape[:2], shape[2] // 16)
        packed.append(
            torch.randint(0, 256, halved, generator=generator, device=device, dtype=torch.uint8)
        )
        uniform = torch.rand(blocks, generator=generator, device=device) * 1.75 + 0.25
        scales.append(uniform.to(torch.float8_e4m3fn))
    spread = torch.rand(count, 3, generator=generator, device=device) * 0.5 + 0.75
    w13_global = (spread[:, :2] * (0.3 * HIDDEN**-0.5)).contiguous()
    w2_global = (spread[:, 2] * (0.3 * intermediate**-0.5)).contiguous()
    return Experts(packed[0], scales[0], w13_global, packed[1], scales[1], w2_global)


def routing(
    rows: int, *, count: int = 512, top_k: int = 10, spread: float = 0.0, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights [rows, top_k] float32, ids int32) on the CPU: softmax of popularity + noise, top k,
    renormalised.

    `spread` is the standard deviation of an expert's popularity in logits, shared by all tokens; 0
    is uniform.
    """
    generator = torch.Generator().manual_seed(seed)
    popularity = spread * torch.randn(count, generator=generator)
    # Gumbel noise makes the top k a draw without replacement by softmax(popularity).
    noise = -torch.log(-torch.log(torch.rand(rows, count, generator=generator)))
    probability, ids = torch.softmax(popularity + noise, dim=-1).topk(top_k, dim=-1)
    weights = probability / probability.sum(-1, keepdim=True)
    return weights.float().contiguous(), ids.int().contiguous()
