# SPDX-License-Identifier: Apache-2.0
"""What the tests of the grouped MoE share: a call of the emulated device code, and its distance to
the oracle."""

from __future__ import annotations

import torch

from kernels_sm70 import emulate
from kernels_sm70.gpu_checks import relative_l2, same_bits
from kernels_sm70.moe_grouped import HIDDEN, launch, reference, synthetic
from kernels_sm70.moe_grouped.experts import Experts
from kernels_sm70.moe_grouped.launch import Buffers, Variant

POISON = 0x7FFF
# Per rounding point: a float32 sum that falls on the other side of a rounding boundary moves one
# element by one ulp.
BOUND = 2e-4


def emulated(
    x: torch.Tensor,
    experts: Experts,
    routing: tuple[torch.Tensor, torch.Tensor],
    *,
    variant: Variant,
    volta: bool = False,
    source_text: str | None = None,
    order: int = emulate.FORWARD,
    hits: int = 0,
) -> Buffers:
    """One call on poisoned buffers by the emulated device code."""
    launch.check(x, experts, *routing)
    buffers = launch.allocate(x, experts.intermediate, routing[1].numel())
    for tensor in (buffers.activation, buffers.routed, buffers.y):
        tensor.view(torch.int16).fill_(POISON)
    buffers.plan.fill_(-77)
    buffers.arrivals.fill_(99)
    lib = emulate.library("moe_grouped", volta=volta, source_text=source_text)
    steps = launch.steps(x, experts, routing, buffers=buffers, variant=variant, hits=hits)
    for spec, args, geometry in steps:
        emulate.run(
            lib,
            spec.entry,
            args,
            launch=emulate.Launch(geometry.grid, geometry.dynamic_shared_bytes, order),
        )
    return buffers


def stage_errors(
    buffers: Buffers, x: torch.Tensor, experts: Experts, routing: tuple[torch.Tensor, torch.Tensor]
) -> tuple[float, float, bool]:
    """(relative L2 of a, of o given a, whether y's bits are the oracle's given o)."""
    weights, ids = routing
    w13 = (experts.w13, experts.w13_scale, experts.w13_global)
    w2 = (experts.w2, experts.w2_scale, experts.w2_global)
    valid = reference.chosen(ids, experts.w13.shape[0])
    live = valid.flatten()
    a = reference.activations(x, w13, ids, x.dtype)
    found_a = buffers.activation.view(a.shape)
    o = reference.outputs(torch.where(valid[..., None], found_a, 0), w2, ids, x.dtype)
    found_o = buffers.routed.view(o.shape)
    clean = torch.where(valid[..., None], found_o, 0)
    y = reference.combine(clean, weights, valid, x.dtype)
    return (
        relative_l2(found_a.flatten(0, 1)[live], a.flatten(0, 1)[live]),
        relative_l2(found_o.flatten(0, 1)[live], o.flatten(0, 1)[live]),
        same_bits(buffers.y, y.to(x.dtype)),
    )


def inputs(
    kind: str,
    storage: torch.dtype,
    *,
    rows: int,
    count: int = 12,
    top_k: int = 4,
    intermediate: int = 160,
    seed: int = 0,
) -> tuple[torch.Tensor, Experts, tuple[torch.Tensor, torch.Tensor]]:
    experts = synthetic.experts(kind, storage, count=count, intermediate=intermediate, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    x = torch.randn(rows, HIDDEN, generator=generator).to(storage)
    return x, experts, synthetic.routing(rows, count=count, top_k=top_k, seed=seed + 2)


def only_what_runs(text: str) -> str:
    """Drop the entries the mutation tests do not run: compiling is most of their time."""
    for unused in (
        "KS_MOE_STORAGE(fp16, ks::Fp16)\n",
        "KS_MOE_ENTRIES(plain_##name, S, ks::moe::Plain)",
    ):
        assert unused in text
        text = text.replace(unused, "")
    return text
