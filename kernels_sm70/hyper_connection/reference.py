# SPDX-License-Identifier: Apache-2.0
"""The oracle of the hyper-connection: float64, with every rounding point of the kernels and no
other.

Rounding points, in order: R' (before the norm), xn, P, lora, G, the mixed block. `storage` is the
type they round to; torch.float64 rounds nowhere, which is what transformers' module in float64
does.
"""

from __future__ import annotations

import torch

STREAMS = 4


def rounded(values: torch.Tensor, storage: torch.dtype) -> torch.Tensor:
    """f(values) as float64."""
    return values.to(storage).double()


def combine(
    residual: torch.Tensor,
    block: torch.Tensor | None,
    injection: torch.Tensor | None,
    storage: torch.dtype,
) -> torch.Tensor:
    """R' [M, 4 H] = f(R + B * 2 sigmoid(J / 4)); without J the block enters with weight one."""
    streams = residual.double().unflatten(-1, (STREAMS, -1))
    if block is None:
        return streams.flatten(-2)
    weight = torch.ones(residual.shape[0], STREAMS, dtype=torch.float64, device=residual.device)
    if injection is not None:
        weight = 2 * torch.sigmoid(injection.double() / STREAMS)
    return rounded(
        (streams + block.double().unsqueeze(1) * weight.unsqueeze(-1)).flatten(-2), storage
    )


def norm(
    combined: torch.Tensor, weight: torch.Tensor, eps: float, storage: torch.dtype
) -> torch.Tensor:
    """xn [M, 4 H] = f(y + y w), y = R' / sqrt(mean over the stream of R'^2 + eps); w [4 H] or
    [H].
    """
    streams = combined.double().unflatten(-1, (STREAMS, -1))
    y = streams * torch.rsqrt(streams.square().mean(-1, keepdim=True) + eps)
    affine = weight.double().view(-1, streams.shape[-1])
    return rounded((y + y * affine).flatten(-2), storage)


def down(
    normed: torch.Tensor, weight: torch.Tensor, lora_rows: int, storage: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """(lora [M, r], J [M, rest]): P = f(xn W^T), lora = f(t sigmoid(t)) with t = P / 4."""
    projected = rounded(normed.double() @ weight.double().T, storage)
    t = projected[:, :lora_rows] / STREAMS
    return rounded(t * torch.sigmoid(t), storage), projected[:, lora_rows:]


def up_mix(
    lora: torch.Tensor, weight: torch.Tensor, normed: torch.Tensor, storage: torch.dtype
) -> torch.Tensor:
    """mixed [M, C] = f(sum_s sigmoid(f(lora Wu_s^T)) xn_s / 4); weight [4 C, r], normed [M, 4,
    C].
    """
    gates = torch.sigmoid(rounded(lora.double() @ weight.double().T, storage)).unflatten(
        -1, (STREAMS, -1)
    )
    streams = normed.double().reshape(normed.shape[0], STREAMS, -1)
    return rounded((gates * streams).sum(1) / STREAMS, storage)


def whole(
    residual: torch.Tensor,
    block: torch.Tensor | None,
    injection: torch.Tensor | None,
    *,
    norm_weight: torch.Tensor,
    down_weight: torch.Tensor,
    up_weight: torch.Tensor,
    eps: float,
    injection_rows: int,
    storage: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(R' [M, 4 H], mixed [M, H], J [M, injection_rows]) of one boundary, in float64."""
    lora_rows = up_weight.shape[1]
    combined = combine(residual, block, injection, storage)
    normed = norm(combined, norm_weight, eps, storage)
    lora, logits = down(normed, down_weight[: lora_rows + injection_rows], lora_rows, storage)
    return combined, up_mix(lora, up_weight, normed, storage), logits
