# SPDX-License-Identifier: Apache-2.0
"""On-GPU checks of the grouped MoE, stage by stage: each rounding point against fp64 given the
device's own
previous stage, and the slot sum bit for bit."""

from __future__ import annotations

import dataclasses

import torch

from kernels_sm70 import gpu_checks
from kernels_sm70.moe_grouped import HIDDEN, gpu_plan, launch, reference, synthetic
from kernels_sm70.moe_grouped.launch import Buffers, Experts, Variant

WIDTHS = (*range(1, 18), 24, 32, 64)
EVERY_VARIANT_AT = (1, 4, 16, 24)
COUNT, TOP_K = 48, 10
# A float32 sum that rounds the other way moves its element by one ulp (2^-11 or 2^-8 of it). At M
# = 1
# a handful of such elements among 1600, one of them large, was seen to make 1.8e-4 in fp16.
REL_L2 = {torch.float16: 3e-4, torch.bfloat16: 1e-3}
KINDS = (
    ("nvfp4", torch.float16),
    ("nvfp4", torch.bfloat16),
    ("plain", torch.float16),
    ("plain", torch.bfloat16),
)
REPLAYED = (("nvfp4", torch.float16), ("plain", torch.bfloat16))
Routing = tuple[torch.Tensor, torch.Tensor]


def volta_atom_forced() -> bool:
    """Whether this process builds with the Volta atom, which has no bf16."""
    import os

    from kernels_sm70.runtime import DEFINES_ENV

    return "KS_FORCE_VOLTA_ATOM" in os.environ.get(DEFINES_ENV, "")


def kinds() -> tuple[tuple[str, torch.dtype], ...]:
    """The storages this process can check."""
    return tuple(k for k in KINDS if not (volta_atom_forced() and k[1] == torch.bfloat16))


def _poison(buffers: Buffers) -> None:
    gpu_checks.poison((buffers.activation, buffers.routed, buffers.y))
    buffers.plan.fill_(-77)
    buffers.arrivals.fill_(99)


def _routing(rows: int, device: torch.device, *, seed: int, spread: float = 0.0) -> Routing:
    weights, ids = synthetic.routing(rows, count=COUNT, top_k=TOP_K, spread=spread, seed=seed)
    return weights.to(device), ids.to(device)


def _tokens(rows: int, storage: torch.dtype, device: torch.device, seed: int) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(rows, HIDDEN, generator=generator, device=device).to(storage)


def verify(
    buffers: Buffers, x: torch.Tensor, experts: Experts, routing: Routing, *, what: str
) -> dict[str, float]:
    """Every stage against the oracle; returns the worst measures.

    Raises:
        AssertionError: naming the stage.
    """
    weights, ids = routing
    valid = reference.chosen(ids, experts.w13.shape[0])
    live = valid.flatten()
    expected = reference.activations(
        x, (experts.w13, experts.w13_scale, experts.w13_global), ids, x.dtype
    )
    found = buffers.activation.view(expected.shape)
    bound = REL_L2[x.dtype]
    a = gpu_checks.assert_close(
        found.flatten(0, 1)[live], expected.flatten(0, 1)[live], rel_l2=bound, what=f"{what} a"
    )
    clean = torch.where(valid[..., None], found, torch.zeros_like(found))
    expected = reference.outputs(
        clean, (experts.w2, experts.w2_scale, experts.w2_global), ids, x.dtype
    )
    found = buffers.routed.view(expected.shape)
    o = gpu_checks.assert_close(
        found.flatten(0, 1)[live], expected.flatten(0, 1)[live], rel_l2=bound, what=f"{what} o"
    )
    clean = torch.where(valid[..., None], found, torch.zeros_like(found))
    y = reference.combine(clean, weights, valid, x.dtype)
    if not gpu_checks.same_bits(buffers.y, y.to(x.dtype)):
        raise AssertionError(
            f"{what}: y is not the fused multiply-add sum of its routes in slot order"
        )
    return {
        "a_rel_l2": a["rel_l2"],
        "o_rel_l2": o["rel_l2"],
        "a_ulp": a["max_ulp"],
        "o_ulp": o["max_ulp"],
    }


def _one(
    rows: int,
    experts: Experts,
    storage: torch.dtype,
    device: torch.device,
    *,
    variant: Variant,
    spread: float = 0.0,
) -> dict[str, float]:
    x, routing = (
        _tokens(rows, storage, device, rows),
        _routing(rows, device, seed=rows, spread=spread),
    )
    launch.check(x, experts, *routing)
    buffers = launch.allocate(x, experts.intermediate, routing[1].numel())
    _poison(buffers)
    launch.run(x, experts, routing, buffers=buffers, variant=variant)
    return verify(
        buffers,
        x,
        experts,
        routing,
        what=f"moe_grouped {experts.kind} {storage} M={rows} {variant}",
    )


def every_width(report: gpu_checks.Report) -> None:
    """Every M, both storages and both weight kinds; every variant at some widths, uniform and
    skewed routes."""
    for kind, storage in kinds():
        experts = synthetic.experts(kind, storage, count=COUNT, device=report.device)
        worst: dict[str, float] = {}
        for rows in WIDTHS:
            variants = (
                launch.VARIANTS.values()
                if rows in EVERY_VARIANT_AT
                else (launch.variant_for(rows * TOP_K),)
            )
            for variant in variants:
                for spread in (0.0, 2.0):
                    if variant.w13 == "w13_inline" and rows * TOP_K > 256:
                        continue
                    measured = _one(
                        rows, experts, storage, report.device, variant=variant, spread=spread
                    )
                    worst = {
                        key: max(value, worst.get(key, 0.0)) for key, value in measured.items()
                    }
        report.add(
            "moe_grouped",
            f"every width, {kind} {storage}, poisoned buffers",
            widths=list(WIDTHS),
            bound_rel_l2=REL_L2[storage],
            y_bit_equal=True,
            **worst,
        )


def few_widths(report: gpu_checks.Report) -> None:
    """A subset for compute-sanitizer."""
    for kind, storage in kinds():
        experts = synthetic.experts(kind, storage, count=4, device=report.device)
        for variant in launch.VARIANTS.values():
            x = _tokens(3, storage, report.device, 1)
            weights, ids = synthetic.routing(3, count=4, top_k=3, seed=1)
            routing = (weights.to(report.device), ids.to(report.device))
            buffers = launch.allocate(x, experts.intermediate, ids.numel())
            _poison(buffers)
            launch.run(x, experts, routing, buffers=buffers, variant=variant)
            verify(buffers, x, experts, routing, what=f"moe_grouped {kind} {storage} {variant}")
    report.add("moe_grouped", "every variant, small", variants=list(launch.VARIANTS))


def _replay_variant(
    experts: Experts, storage: torch.dtype, device: torch.device, *, name: str
) -> None:
    x, routing = _tokens(16, storage, device, 0), _routing(16, device, seed=0)
    buffers = launch.allocate(x, experts.intermediate, routing[1].numel())

    def refill(seed: int) -> None:
        x.copy_(_tokens(16, storage, device, 100 + seed))
        fresh = _routing(16, device, seed=seed, spread=seed % 3)
        for held, new in zip(routing, fresh, strict=True):
            held.copy_(new)
        _poison(buffers)

    def run() -> None:
        launch.run(x, experts, routing, buffers=buffers, variant=launch.VARIANTS[name])

    def check(cycle: int) -> None:
        verify(buffers, x, experts, routing, what=f"moe_grouped {name} replay {cycle}")

    gpu_checks.replay_with_changes(run, refill=refill, outputs=(buffers.y,), verify=check)
    gpu_checks.stress_beside_traffic(run, verify=lambda: check(-1), cycles=8)


def graph_replay(report: gpu_checks.Report) -> None:
    """Changed tokens, routes and weights under graph replay, poisoned buffers; then a busy card."""
    for kind, storage in kinds():
        if (kind, storage) not in REPLAYED:
            continue
        experts = synthetic.experts(kind, storage, count=COUNT, device=report.device)
        for name in launch.VARIANTS:
            _replay_variant(experts, storage, report.device, name=name)
        report.add(
            "moe_grouped",
            f"changed inputs under replay, auxiliary stream, {kind} {storage}",
            variants=list(launch.VARIANTS),
        )


def beyond_int32(report: gpu_checks.Report) -> None:
    """Experts whose byte offsets exceed 2^31: the last of 512 at I = 640."""
    small = synthetic.experts(
        "plain", torch.float16, count=2, intermediate=640, device=report.device
    )
    count = 512
    w13 = torch.empty(count, 1280, HIDDEN, dtype=torch.float16, device=report.device)
    w2 = torch.empty(count, HIDDEN, 640, dtype=torch.float16, device=report.device)
    w13[-2:], w2[-2:] = small.w13, small.w2
    large = dataclasses.replace(small, w13=w13, w2=w2)
    x = _tokens(4, torch.float16, report.device, 3)
    weights, ids = synthetic.routing(4, count=2, top_k=2, seed=3)
    routing = (weights.to(report.device), ids.to(report.device) + count - 2)
    buffers = launch.allocate(x, 640, ids.numel())
    _poison(buffers)
    launch.run(x, large, routing, buffers=buffers)
    report.add(
        "moe_grouped",
        "experts beyond 2^31 bytes",
        w13_bytes=w13.numel() * 2,
        **verify(buffers, x, large, routing, what="moe_grouped beyond int32"),
    )


def not_numbers(report: gpu_checks.Report) -> None:
    """NaN and infinities in one token reach that token's output and no other."""
    experts = synthetic.experts("nvfp4", torch.float16, count=COUNT, device=report.device)
    routing = _routing(4, report.device, seed=1, spread=3.0)
    x = _tokens(4, torch.float16, report.device, 1)
    buffers = launch.allocate(x, experts.intermediate, routing[1].numel())
    clean = launch.run(x, experts, routing, buffers=buffers).clone()
    for payload in (float("nan"), float("inf"), float("-inf")):
        spoiled = x.clone()
        spoiled[2, 1999] = payload
        y = launch.run(spoiled, experts, routing, buffers=buffers)
        if bool(torch.isfinite(y[2]).any()) or not gpu_checks.same_bits(
            y[[0, 1, 3]], clean[[0, 1, 3]]
        ):
            raise AssertionError(
                f"moe_grouped: {payload} in token 2 did not stay in, or did not reach, its own row"
            )
    report.add("moe_grouped", "NaN and infinities stay in their token")


CHECKS = (every_width, gpu_plan.plans, graph_replay, beyond_int32, not_numbers)
SANITIZER_CHECKS = (few_widths,)
# In a process built with the Volta atom, which newer GPUs run as emulated multiply-adds.
VOLTA_CHECKS = (few_widths,)
