# SPDX-License-Identifier: Apache-2.0
"""Timing of the hyper-connection: the whole boundary against vLLM's own route, and each stage
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch

from kernels_sm70 import runtime
from kernels_sm70.bench.harness import Absent, Case, Runner, Target
from kernels_sm70.hyper_connection import (
    HIDDEN,
    RANK,
    STREAMS,
    cases,
    chain,
    floor_down,
    floor_norm,
    floor_up,
    floor_whole,
    launch,
    weights,
)

EPS = cases.EPS
VLLM, TORCH = "vLLM 0.32 route", "torch operations"


def _torch_boundary(given: cases.Inputs) -> torch.Tensor:
    """The boundary in torch operations, one kernel each: what runs where neither vLLM nor we do."""
    linear, rows = torch.nn.functional.linear, given.residual.shape[0]
    streams = given.residual.view(rows, STREAMS, -1)
    scale = 2 * torch.sigmoid(given.injection / STREAMS)
    combined = streams + given.block.unsqueeze(1) * scale.unsqueeze(-1)
    y = torch.nn.functional.rms_norm(combined, combined.shape[-1:], eps=EPS)
    normed = (y + y * given.norm_weight.view(STREAMS, -1)).view(rows, -1)
    projected = linear(normed, given.down)
    lora = torch.nn.functional.silu(projected[:, :RANK] / STREAMS)
    gates = torch.sigmoid(linear(lora, given.up)).view(rows, STREAMS, -1)
    return (gates * normed.view(rows, STREAMS, -1)).mean(1)


def _vllm_boundary(
    device: torch.device, dtype: torch.dtype
) -> Callable[[cases.Inputs], object] | Absent:
    """vLLM's GatedResidual.combine_and_mix on bare tensors: the same operations with the same
    dispatch.
    """
    try:
        from vllm.models.qwen4_exp.nvidia import low_latency_gemm  # noqa: F401  registers its op
        from vllm.models.qwen4_exp.nvidia.ops import hc
        from vllm.models.qwen4_exp.nvidia.ops.cute_dsl.hc_down_silu import hc_down_silu
    except ImportError as error:
        return Absent(f"vLLM cannot be imported here: {error}")
    linear, bf16 = torch.nn.functional.linear, dtype == torch.bfloat16
    fused = bf16 and torch.cuda.get_device_capability(device)[0] >= 9

    def run(given: cases.Inputs) -> object:
        _, normed = hc.hc_combine_norm(
            given.residual, given.block, given.injection, given.norm_weight, EPS, STREAMS
        )
        if fused:
            lora, _ = hc_down_silu(normed, given.down, RANK, STREAMS)
        else:
            lora = hc.hc_silu(linear(normed, given.down)[:, :RANK], STREAMS)
        up = torch.ops.vllm.qwen4_exp_low_latency_gemm if bf16 else linear
        return hc.hc_gate_mix(normed, up(lora, given.up), STREAMS)

    try:
        run(cases.inputs(4, dtype, device, seed=0))
    except Exception as error:  # noqa: BLE001  foreign code: stored as the reason
        return Absent(f"vLLM's route failed here: {type(error).__name__}: {error}"[:300])
    return run


def _planned(sets: list[cases.Inputs], *, form: str, dependent: bool = True) -> Runner:
    device = sets[0].residual.device
    arch = runtime.architecture(device)
    kept = [cases.outputs(given) for given in sets]
    plans = [
        cases.plans(given, out, arch=arch, form=form) for given, out in zip(sets, kept, strict=True)
    ]

    def run(index: int) -> object:
        for plan in plans[index]:
            plan.launch(device, dependent=dependent)
        return kept[index]

    return run


def _over(run: Callable[[cases.Inputs], object], sets: list[cases.Inputs]) -> Runner:
    return lambda index: run(sets[index])


def _prepare_whole(
    device: torch.device, count: int, *, rows: int, dtype: torch.dtype
) -> Mapping[str, Runner | Absent]:
    sets = [cases.inputs(rows, dtype, device, seed=i) for i in range(count)]
    arch = runtime.architecture(device)
    vllm = _vllm_boundary(device, dtype)
    runners: dict[str, Runner | Absent] = {
        form: _planned(sets, form=form) for form in chain.forms(arch)
    }
    chosen = chain.preferred(rows, HIDDEN, arch)
    runners[f"{chosen}, ordinary launches"] = _planned(sets, form=chosen, dependent=False)
    runners[VLLM] = vllm if isinstance(vllm, Absent) else _over(vllm, sets)
    runners[TORCH] = _over(_torch_boundary, sets)
    return runners


def _prepare_stage(
    device: torch.device, count: int, *, rows: int, stage: str
) -> Mapping[str, Runner | Absent]:
    sets = [cases.inputs(rows, torch.float16, device, seed=i) for i in range(count)]
    arch = runtime.architecture(device)
    runners: dict[str, Runner | Absent] = {}
    for form in chain.forms(arch):
        kept = [_filled(cases.outputs(given)) for given in sets]
        chains = [
            cases.plans(given, out, arch=arch, form=form)
            for given, out in zip(sets, kept, strict=True)
        ]
        steps = [plan for plan in chains[0] if stage in plan.entry]
        if not steps or any(stage in name for name in runners if stage != "down"):
            continue
        place = chains[0].index(steps[0])
        runners[steps[0].entry] = _one_step([chain[place] for chain in chains], device, kept)
    return runners


def _one_step(plans: list[launch.Plan], device: torch.device, kept: object) -> Runner:
    def run(index: int) -> object:
        plans[index].launch(device)
        return kept

    return run


def _filled(out: cases.Outputs) -> cases.Outputs:
    for tensor in out.all():
        tensor.normal_()
    return out


def _prepare_shard(device: torch.device, count: int, *, rows: int) -> Mapping[str, Runner | Absent]:
    sets = [cases.inputs(rows, torch.float16, device, seed=i) for i in range(count)]
    arch, columns = runtime.architecture(device), HIDDEN // 4
    kept = [_filled(cases.outputs(given)) for given in sets]
    shards = [weights.prepare_up_shard(given.up, ranks=4, rank=1) for given in sets]
    plans = [
        launch.plan_up(
            out.lora,
            shard,
            out.normed,
            out.mixed[:, columns : 2 * columns],
            arch=arch,
            first_column=columns,
        )
        for out, shard in zip(kept, shards, strict=True)
    ]
    return {"kernel, one rank of four": _one_step(plans, device, (kept, shards))}


def _whole(rows: int, name: str, dtype: torch.dtype) -> Case:
    target = Target(max_floors=2.0, min_speedup=1.2, baseline=VLLM)
    return Case(
        "hyper_connection",
        f"whole M{rows} {name}",
        floor_whole(rows),
        partial(_prepare_whole, rows=rows, dtype=dtype),
        {chain.preferred(rows, HIDDEN, "sm_90"): target},
    )


STAGES: tuple[tuple[str, Callable[[int], int]], ...] = (
    ("combine_norm", floor_norm),
    ("down", floor_down),
    ("up_mix", floor_up),
)
CASES = (
    *(
        _whole(rows, name, dtype)
        for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16))
        for rows in (4, 8, 16)
    ),
    *(
        Case(
            "hyper_connection",
            f"{name} M{rows} fp16",
            floor(rows),
            partial(_prepare_stage, rows=rows, stage=name),
        )
        for name, floor in STAGES
        for rows in (4, 16)
    ),
    Case(
        "hyper_connection",
        "up_mix shard M16 fp16",
        floor_up(16, HIDDEN // 4),
        partial(_prepare_shard, rows=16),
    ),
)
