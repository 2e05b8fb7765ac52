# SPDX-License-Identifier: Apache-2.0
"""Checks at the door, Args and grids of the grouped MoE."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernels_sm70.contract import KernelSpec, check_layout, check_tensor, refuse, row_stride
from kernels_sm70.moe_grouped import (
    HIDDEN,
    INLINE_ROUTES,
    MAX_EXPERTS,
    MAX_ROUTES,
    PASS,
    PLAN_GROUP,
    PLAN_HEADER,
    SPECS,
)
from kernels_sm70.runtime import Geometry, launch

WHERE = "moe_grouped"
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
class Experts:
    """Weights of all experts as the kernels read them; scales are None for plain storage."""

    w13: torch.Tensor
    w13_scale: torch.Tensor | None
    w13_global: torch.Tensor | None
    w2: torch.Tensor
    w2_scale: torch.Tensor | None
    w2_global: torch.Tensor | None

    @property
    def kind(self) -> str:
        """The weight policy: "nvfp4" or "plain"."""
        return "plain" if self.w13_scale is None else "nvfp4"

    @property
    def intermediate(self) -> int:
        """I."""
        return int(self.w13.shape[1]) // 2


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


def check_experts(experts: Experts, storage: torch.dtype) -> None:
    """Refuse expert tensors whose shape, dtype or layout breaks the contract; reads no data.

    Raises:
        ContractError: naming the tensor and the clause.
    """
    count, rows = int(experts.w13.shape[0]), int(experts.w13.shape[1])
    width = rows // 2
    if width == 0 or rows % 2 or width % PASS:
        raise refuse(
            WHERE,
            what="intermediate size",
            expected=f"a multiple of {PASS}",
            found=width,
            remedy="use the original route for this geometry",
        )
    if not 1 <= count <= MAX_EXPERTS:
        raise refuse(
            WHERE,
            what="experts",
            expected=f"1 to {MAX_EXPERTS}",
            found=count,
            remedy="use the original route for this geometry",
        )
    device = experts.w13.device
    halved = experts.kind == "nvfp4"
    wanted: list[tuple[str, torch.Tensor | None, tuple[int, ...], torch.dtype]] = [
        (
            "w13",
            experts.w13,
            (count, rows, HIDDEN // 2 if halved else HIDDEN),
            torch.uint8 if halved else storage,
        ),
        (
            "w2",
            experts.w2,
            (count, HIDDEN, width // 2 if halved else width),
            torch.uint8 if halved else storage,
        ),
    ]
    if halved:
        wanted += [
            ("w13_scale", experts.w13_scale, (count, rows, HIDDEN // 16), torch.float8_e4m3fn),
            ("w2_scale", experts.w2_scale, (count, HIDDEN, width // 16), torch.float8_e4m3fn),
            ("w13_global", experts.w13_global, (count, 2), torch.float32),
            ("w2_global", experts.w2_global, (count,), torch.float32),
        ]
    for name, tensor, shape, dtype in wanted:
        if tensor is None:
            raise refuse(
                WHERE,
                what=name,
                expected="a tensor, as w13_scale is given",
                found="None",
                remedy="pass all four scales, or none for plain experts",
            )
        alignment = 4 if name.endswith("global") else 2 if name.endswith("scale") else 16
        check_tensor(
            WHERE,
            name,
            tensor,
            shape=shape,
            dtype=dtype,
            device=device,
            row_alignment_bytes=alignment,
        )
        if not tensor.is_contiguous():
            raise refuse(
                WHERE,
                what=f"{name} layout",
                expected="packed",
                found=f"strides {tensor.stride()}",
                remedy="prepare the weights once with .contiguous()",
            )


def prepare(experts: Experts, storage: torch.dtype) -> Experts:
    """Check weights once, at load: layout, and that no scale is NaN or infinite. Reads the data
    (synchronises).

    Raises:
        ContractError: also when a block scale is an e4m3 NaN or a global scale is not finite.
    """
    check_experts(experts, storage)
    for name in ("w13_scale", "w2_scale", "w13_global", "w2_global"):
        tensor = getattr(experts, name)
        if tensor is None:
            continue
        if tensor.dtype == torch.float8_e4m3fn:
            bad = int(((tensor.view(torch.uint8) & 0x7F) == 0x7F).sum())
        else:
            bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            raise refuse(
                WHERE,
                what=name,
                expected="finite scales",
                found=f"{bad} that are not",
                remedy="repair the checkpoint; the kernel would read a NaN scale as a number",
            )
    return experts


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
    rows = int(x.shape[0])
    for name, tensor, dtype in (
        ("topk_ids", topk_ids, torch.int32),
        ("topk_weights", topk_weights, torch.float32),
    ):
        check_tensor(
            WHERE,
            name,
            tensor,
            shape=(rows, None),
            dtype=dtype,
            device=x.device,
            row_alignment_bytes=4,
        )
        if not tensor.is_contiguous():
            raise refuse(
                WHERE,
                what=f"{name} layout",
                expected="packed",
                found=f"strides {tensor.stride()}",
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
    check_layout(WHERE, "topk_ids", topk_ids, row_alignment_bytes=4)


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
    topk_weights, topk_ids = routing
    routes, top_k = topk_ids.numel(), int(topk_ids.shape[1])
    count = int(experts.w13.shape[0])
    inline = variant.w13 == "w13_inline"
    args = Args(
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
        (hits if inline else 0) or None,
        row_stride(x),
        routes,
        top_k,
        experts.intermediate,
        count,
    )
    suffix = f"{experts.kind}_{STORAGE[x.dtype]}"
    if not inline:
        spec = SPECS["ks_moe_plan"]
        planned = PlanArgs(
            topk_ids.data_ptr(),
            buffers.plan.data_ptr(),
            buffers.arrivals.data_ptr(),
            hits or None,
            routes,
            top_k,
            count,
        )
        yield spec, planned, Geometry((1, 1, 1), spec.threads)
    tiles = 2 if variant.w13 == "w13_split2" else 1
    spec = SPECS[f"ks_moe_{variant.w13}_{suffix}"]
    columns = -(-experts.intermediate // (16 * tiles))
    # A planning W13 has one more row of blocks: it writes the plan.
    yield spec, args, Geometry((columns, routes + int(inline), 1), spec.threads)
    spec = SPECS[f"ks_moe_{'w2_reduce' if variant.fused_reduce else 'w2'}_{suffix}"]
    yield spec, args, Geometry((ARRIVALS, routes, 1), spec.threads)
    if not variant.fused_reduce:
        spec = SPECS[f"ks_moe_reduce_{STORAGE[x.dtype]}"]
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
