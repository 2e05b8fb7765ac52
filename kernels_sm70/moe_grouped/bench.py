# SPDX-License-Identifier: Apache-2.0
"""Timing of the grouped MoE: every composition of its kernels; vLLM's Triton experts beside the
plain storage."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

import torch

from kernels_sm70.bench import optional
from kernels_sm70.bench.harness import SETS, Absent, Case, Runner, Target
from kernels_sm70.gpu_checks import relative_l2
from kernels_sm70.moe_grouped import EXPERTS, HIDDEN, floor_bytes, launch, synthetic
from kernels_sm70.moe_grouped.launch import Experts, Variant

# Sets take turns on four tables of 512 experts: a set's experts leave the L2 before they come
# again.
TABLES = 4
TRAFFIC = {"uniform": 0.0, "captured-like": synthetic.CAPTURED_SPREAD}
VLLM = "vLLM fused_experts (Triton)"


@cache
def _routings(rows: int, traffic: str) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    return tuple(
        synthetic.routing(rows, spread=TRAFFIC[traffic], seed=1000 * rows + i) for i in range(SETS)
    )


def _distinct(rows: int, traffic: str) -> float:
    return sum(int(ids.unique().numel()) for _, ids in _routings(rows, traffic)) / SETS


@cache
def _tables(kind: str, storage: torch.dtype, device: torch.device) -> tuple[Experts, ...]:
    return tuple(
        synthetic.experts(kind, storage, count=EXPERTS, device=device, seed=seed)
        for seed in range(TABLES)
    )


def _vllm(
    tables: tuple[Experts, ...],
    x: list[torch.Tensor],
    routings: list[tuple[torch.Tensor, torch.Tensor]],
    ours: Runner,
) -> Runner | Absent:
    """vLLM's Triton experts on the same weights; they round the products of a slot to the
    storage."""
    if tables[0].kind == "nvfp4":
        return Absent("vLLM's NVFP4 experts on this GPU are Marlin's, whose weights are repacked")
    found: list[torch.Tensor] = []

    def load() -> Runner:
        from vllm.model_executor.layers.fused_moe.fused_moe import fused_experts_op

        def theirs(index: int) -> object:
            experts = tables[index % TABLES]
            out = fused_experts_op(x[index], experts.w13, experts.w2, *routings[index])
            found[:] = [out]
            return out

        return theirs

    def agrees() -> str | None:
        expected = ours(0)
        assert isinstance(expected, torch.Tensor)
        error = relative_l2(found[0], expected)
        return None if error < 2e-2 else f"relative L2 {error:.1e}"

    return optional.baseline(load, agrees=agrees)


def _prepare(
    device: torch.device, sets: int, *, rows: int, traffic: str, kind: str, storage: torch.dtype
) -> Mapping[str, Runner | Absent]:
    tables = _tables(kind, storage, device)
    routings = [(w.to(device), i.to(device)) for w, i in _routings(rows, traffic)[:sets]]
    generator = torch.Generator(device=device).manual_seed(rows)
    x = [
        torch.randn(rows, HIDDEN, generator=generator, device=device).to(storage)
        for _ in range(sets)
    ]
    buffers = [
        launch.allocate(x[i], tables[0].intermediate, routings[i][1].numel()) for i in range(sets)
    ]

    def ours(index: int, *, variant: Variant) -> object:
        experts = tables[index % TABLES]
        return launch.run(
            x[index], experts, routings[index], buffers=buffers[index], variant=variant
        )

    runners: dict[str, Runner | Absent] = {
        name: partial(ours, variant=variant) for name, variant in launch.VARIANTS.items()
    }
    ours_first = partial(ours, variant=launch.INLINE)
    return runners | {VLLM: _vllm(tables, x, routings, ours_first)}


def _case(rows: int, traffic: str, kind: str, storage: torch.dtype) -> Case:
    limit = 2.5 if kind == "nvfp4" else None
    name = str(storage).removeprefix("torch.")
    return Case(
        operation="moe_grouped",
        label=f"M{rows} {kind} {name} {traffic}",
        bytes=floor_bytes(rows, kind=kind, distinct=_distinct(rows, traffic)),
        prepare=partial(_prepare, rows=rows, traffic=traffic, kind=kind, storage=storage),
        targets={"inline plan, fused reduce": Target(max_floors=limit)} if limit else {},
    )


CASES = (
    *(_case(rows, traffic, "nvfp4", torch.float16) for rows in (4, 8, 16) for traffic in TRAFFIC),
    *(_case(rows, "uniform", "nvfp4", torch.bfloat16) for rows in (4, 8, 16)),
    *(
        _case(rows, "uniform", "plain", storage)
        for rows in (4, 8, 16)
        for storage in (torch.float16, torch.bfloat16)
    ),
)
