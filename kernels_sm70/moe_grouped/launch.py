# SPDX-License-Identifier: Apache-2.0
"""Checks at the door, Args and grids of the grouped MoE."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernels_sm70.contract import KernelSpec, check_tensor, refuse, row_stride
from kernels_sm70.moe_grouped import (
    HIDDEN,
    INLINE_ROUTES,
    MAX_ROUTES,
    PLAN_GROUP,
    PLAN_HEADER,
    SPECS,
)
from kernels_sm70.moe_grouped.experts import WHERE, check_experts
from kernels_sm70.moe_grouped.experts import Experts as Experts
from kernels_sm70.moe_grouped.experts import prepare as prepare
from kernels_sm70.runtime import Geometry, launch

STORAGE = {torch.float16: "fp16", torch.bfloat16: "bf16"}
ARRIVALS = 10


class PlanArgs(ctypes.Structure):
    """Mirror of ks::moe::PlanArgs."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("topk_ids", "plan", "arrivals", "hits")),
        *((name, ctypes.c_int) for name in ("routes", "top_k", "experts")),
    )


class Args(ctypes.Structure):
    """Mirror of ks::moe::Args."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in (
                "x",
                "w13",
                "w13_scale",
                "w13_global",
                "w2",
                "w2_scale",
                "w2_global",
                "topk_ids",
                "topk_weights",
                "plan",
                "activation",
                "routed",
                "y",
                "arrivals",
                "hits",
            )
        ),
        ("x_stride", ctypes.c_longlong),
        *((name, ctypes.c_int) for name in ("routes", "top_k", "intermediate", "experts")),
    )


@dataclass(frozen=True, slots=True)
class Variant:
    """Which kernels make up the operation. `w13` is "w13", "w13_inline" (plans for itself) or
    "w13_split2"."""

    w13: str = "w13"
    fused_reduce: bool = True


VARIANTS = {
    "inline plan, fused reduce": Variant("w13_inline", True),
    "plan, fused reduce": Variant("w13", True),
    "plan, separate reduce": Variant("w13", False),
    "W13 of two tiles a block": Variant("w13_split2", True),
}
INLINE = VARIANTS["inline plan, fused reduce"]
PLANNED = VARIANTS["plan, fused reduce"]


def variant_for(routes: int) -> Variant:
    """The default composition, from shapes alone."""
    return INLINE if routes <= INLINE_ROUTES else PLANNED


@dataclass(frozen=True, slots=True)
class Buffers:
    """What a call writes; all of it is written before it is read."""

    plan: torch.Tensor
    activation: torch.Tensor
    routed: torch.Tensor
    arrivals: torch.Tensor
    y: torch.Tensor


def check(x: Any, experts: Experts, topk_weights: Any, topk_ids: Any) -> None:
    """Refuse a call outside the contract; decided from shapes, dtypes and layout only.

    Raises:
        ContractError: naming the clause.
    """
    if x.dtype not in STORAGE:
        raise refuse(
            WHERE,
            what="x dtype",
            expected="float16 or bfloat16",
            found=x.dtype,
            remedy="use the original route",
        )
    check_tensor(WHERE, "x", x, shape=(None, HIDDEN), dtype=x.dtype, device=experts.w13.device)
    check_experts(experts, x.dtype)
    for name, tensor, dtype in (
        ("topk_ids", topk_ids, torch.int32),
        ("topk_weights", topk_weights, torch.float32),
    ):
        shape = (int(x.shape[0]), None)
        check_tensor(
            WHERE, name, tensor, shape=shape, dtype=dtype, device=x.device, row_alignment_bytes=4
        )
    _check_routing(topk_weights, topk_ids)


def _check_routing(topk_weights: Any, topk_ids: Any) -> None:
    if not (topk_ids.is_contiguous() and topk_weights.is_contiguous()):
        raise refuse(
            WHERE,
            what="layout of topk_ids and topk_weights",
            expected="packed",
            found=f"strides {topk_ids.stride()} and {topk_weights.stride()}",
            remedy="pass the router's own output",
        )
    if topk_ids.shape != topk_weights.shape:
        raise refuse(
            WHERE,
            what="topk_weights shape",
            expected=str(list(topk_ids.shape)),
            found=list(topk_weights.shape),
            remedy="pass both outputs of one router call",
        )
    if not 1 <= topk_ids.numel() <= MAX_ROUTES:
        raise refuse(
            WHERE,
            what="routes (M * K)",
            expected=f"1 to {MAX_ROUTES}",
            found=topk_ids.numel(),
            remedy="skip an empty batch; send prefill widths to the original route",
        )


def allocate(x: torch.Tensor, intermediate: int, routes: int) -> Buffers:
    """Uninitialised buffers for a call."""
    integers = {"dtype": torch.int32, "device": x.device}
    return Buffers(
        torch.empty(PLAN_HEADER + PLAN_GROUP * routes, **integers),
        x.new_empty(routes, intermediate),
        x.new_empty(routes, HIDDEN),
        torch.empty(ARRIVALS, **integers),
        x.new_empty(x.shape[0], HIDDEN),
    )


def _arguments(
    x: torch.Tensor,
    experts: Experts,
    routing: tuple[torch.Tensor, torch.Tensor],
    *,
    buffers: Buffers,
    hits: int,
) -> Args:
    topk_weights, topk_ids = routing
    return Args(
        x.data_ptr(),
        experts.w13.data_ptr(),
        _address(experts.w13_scale),
        _address(experts.w13_global),
        experts.w2.data_ptr(),
        _address(experts.w2_scale),
        _address(experts.w2_global),
        topk_ids.data_ptr(),
        topk_weights.data_ptr(),
        buffers.plan.data_ptr(),
        buffers.activation.data_ptr(),
        buffers.routed.data_ptr(),
        buffers.y.data_ptr(),
        buffers.arrivals.data_ptr(),
        hits or None,
        row_stride(x),
        topk_ids.numel(),
        int(topk_ids.shape[1]),
        experts.intermediate,
        int(experts.w13.shape[0]),
    )


def plan_step(
    topk_ids: torch.Tensor, count: int, *, buffers: Buffers, hits: int = 0
) -> tuple[KernelSpec, PlanArgs, Geometry]:
    """The launch of the plan kernel alone, for `count` experts."""
    spec = SPECS["ks_moe_plan"]
    plan, arrivals = buffers.plan.data_ptr(), buffers.arrivals.data_ptr()
    routes, top_k = topk_ids.numel(), int(topk_ids.shape[1])
    args = PlanArgs(topk_ids.data_ptr(), plan, arrivals, hits or None, routes, top_k, count)
    return spec, args, Geometry((1, 1, 1), spec.threads)


def steps(
    x: torch.Tensor,
    experts: Experts,
    routing: tuple[torch.Tensor, torch.Tensor],
    *,
    buffers: Buffers,
    variant: Variant,
    hits: int = 0,
) -> Iterator[tuple[KernelSpec, ctypes.Structure, Geometry]]:
    """The launches of a checked call, in order. `routing` is (topk_weights, topk_ids)."""
    routes, inline = routing[1].numel(), variant.w13 == "w13_inline"
    args = _arguments(x, experts, routing, buffers=buffers, hits=hits if inline else 0)
    storage = STORAGE[x.dtype]
    if not inline:
        yield plan_step(routing[1], int(experts.w13.shape[0]), buffers=buffers, hits=hits)
    tiles = 2 if variant.w13 == "w13_split2" else 1
    spec = SPECS[f"ks_moe_{variant.w13}_{experts.kind}_{storage}"]
    columns = -(-experts.intermediate // (16 * tiles))
    # A planning W13 has one more row of blocks: it writes the plan.
    yield spec, args, Geometry((columns, routes + int(inline), 1), spec.threads)
    w2 = "w2_reduce" if variant.fused_reduce else "w2"
    spec = SPECS[f"ks_moe_{w2}_{experts.kind}_{storage}"]
    yield spec, args, Geometry((ARRIVALS, routes, 1), spec.threads)
    if not variant.fused_reduce:
        spec = SPECS[f"ks_moe_reduce_{storage}"]
        yield spec, args, Geometry((x.shape[0], HIDDEN // (8 * spec.threads), 1), spec.threads)


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def run(
    x: torch.Tensor,
    experts: Experts,
    routing: tuple[torch.Tensor, torch.Tensor],
    *,
    buffers: Buffers,
    variant: Variant | None = None,
    hits: int = 0,
) -> torch.Tensor:
    """Enqueue a checked call into given buffers and return y."""
    chosen = variant or variant_for(routing[1].numel())
    for spec, args, geometry in steps(
        x, experts, routing, buffers=buffers, variant=chosen, hits=hits
    ):
        launch(spec, args, geometry, device=x.device)
    return buffers.y
