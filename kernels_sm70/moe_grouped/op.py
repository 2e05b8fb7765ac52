# SPDX-License-Identifier: Apache-2.0
"""The torch operation kernels_sm70::moe_grouped and the choice between it and the original
route."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from kernels_sm70 import counters, library
from kernels_sm70.contract import ContractError
from kernels_sm70.moe_grouped import launch, reference
from kernels_sm70.moe_grouped.experts import Experts

HIT = "moe_grouped.hit"
REASONS = ("m", "contract")
ROUTES = (HIT, *(f"moe_grouped.fallback.{reason}" for reason in REASONS))
# Decode widths: one token has no second route to share an expert's weights with; wider batches are
# prefill.
ROWS_MIN, ROWS_MAX = 2, 64

Maybe: TypeAlias = torch.Tensor | None


def _cuda(
    x: torch.Tensor,
    w13: torch.Tensor,
    w13_scale: Maybe,
    w13_global: Maybe,
    w2: torch.Tensor,
    w2_scale: Maybe,
    w2_global: Maybe,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
) -> torch.Tensor:
    experts = Experts(w13, w13_scale, w13_global, w2, w2_scale, w2_global)
    launch.check(x, experts, topk_weights, topk_ids)
    buffers = launch.allocate(x, experts.intermediate, topk_ids.numel())
    return launch.run(
        x,
        experts,
        (topk_weights, topk_ids),
        buffers=buffers,
        hits=counters.row(HIT, x.device).data_ptr(),
    )


def _cpu(
    x: torch.Tensor,
    w13: torch.Tensor,
    w13_scale: Maybe,
    w13_global: Maybe,
    w2: torch.Tensor,
    w2_scale: Maybe,
    w2_global: Maybe,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
) -> torch.Tensor:
    experts = Experts(w13, w13_scale, w13_global, w2, w2_scale, w2_global)
    launch.check(x, experts, topk_weights, topk_ids)
    counters.count(HIT, x.shape[0], x.device)
    stages = reference.moe(
        x,
        (w13, w13_scale, w13_global),
        (w2, w2_scale, w2_global),
        topk_weights=topk_weights,
        topk_ids=topk_ids,
        storage=x.dtype,
    )
    return stages.y.to(x.dtype)


def _fake(x: torch.Tensor, *_: object) -> torch.Tensor:
    return x.new_empty(x.shape)


library.define(
    "moe_grouped(Tensor x, Tensor w13, Tensor? w13_scale, Tensor? w13_global, Tensor w2, "
    "Tensor? w2_scale, Tensor? w2_global, Tensor topk_weights, Tensor topk_ids) -> Tensor",
    cuda=_cuda,
    cpu=_cpu,
    fake=_fake,
)


def route(
    x: torch.Tensor, experts: Experts, topk_weights: torch.Tensor, topk_ids: torch.Tensor
) -> str | None:
    """Why the original route must be taken, or None; decided from shapes and layout only."""
    if not ROWS_MIN <= x.shape[0] <= ROWS_MAX:
        return "m"
    try:
        launch.check(x, experts, topk_weights, topk_ids)
    except ContractError:
        return "contract"
    return None


def moe_or(
    original: Callable[[], torch.Tensor],
    x: torch.Tensor,
    experts: Experts,
    *,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
) -> torch.Tensor:
    """The kernels' y, or `original()` where the call is out of contract; every call is counted."""
    reason = route(x, experts, topk_weights, topk_ids)
    if reason is not None:
        counters.count(f"moe_grouped.fallback.{reason}", x.shape[0], x.device)
        return original()
    y: torch.Tensor = torch.ops.kernels_sm70.moe_grouped(
        x,
        experts.w13,
        experts.w13_scale,
        experts.w13_global,
        experts.w2,
        experts.w2_scale,
        experts.w2_global,
        topk_weights,
        topk_ids,
    )
    return y
