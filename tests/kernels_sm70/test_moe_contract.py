# SPDX-License-Identifier: Apache-2.0
"""The grouped MoE's contract at the door, its operation, and its oracle against other
implementations."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from kernels_sm70 import counters
from kernels_sm70.contract import ContractError
from kernels_sm70.gpu_checks import relative_l2
from kernels_sm70.moe_grouped import HIDDEN, MAX_ROUTES, launch, op, reference, synthetic
from tests.kernels_sm70.moe_support import BOUND, emulated, inputs, stage_errors

# ---- the oracle against others -------------------------------------------------------------------


def test_oracle_without_rounding_equals_transformers() -> None:
    modeling = pytest.importorskip(
        "transformers.models.qwen4_exp.modeling_qwen4_exp", reason="transformers lacks qwen4_exp"
    )
    config_module = pytest.importorskip("transformers.models.qwen4_exp.configuration_qwen4_exp")
    config = config_module.Qwen4ExpTextConfig(
        hidden_size=HIDDEN,
        moe_intermediate_size=160,
        num_experts=6,
        num_experts_per_tok=3,
        shared_expert_intermediate_size=16,
        experts_implementation="eager",
    )
    config._experts_implementation = "eager"
    block = modeling.Qwen4ExpTextSparseMoeBlock(config).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.05
            )
        x = torch.randn(5, HIDDEN, generator=generator, dtype=torch.float64)
        _, weights, ids = block.gate(x)
        expected = block.experts(x, ids, weights)
    stages = reference.moe(
        x,
        (block.experts.gate_up_proj.data, None, None),
        (block.experts.down_proj.data, None, None),
        topk_weights=weights,
        topk_ids=ids,
        storage=torch.float64,
    )
    assert relative_l2(stages.y, expected) < 1e-12


def test_dequantisation_equals_vllm_and_the_device() -> None:
    emulation = pytest.importorskip(
        "vllm.model_executor.layers.quantization.utils.nvfp4_emulation_utils",
        reason="vllm is not installed",
    )
    experts = synthetic.experts("nvfp4", torch.float16, count=1, seed=9)
    assert experts.w13_scale is not None
    expected = emulation.dequantize_to_dtype(
        experts.w13[0],
        experts.w13_scale[0],
        torch.tensor(1.0),
        torch.float32,
        block_size=16,
        swizzle=False,
    )
    assert torch.equal(
        reference.dequantize(experts.w13[0], experts.w13_scale[0]), expected.double()
    )


@pytest.mark.parametrize("storage", [torch.float16, torch.bfloat16])
def test_every_nibble_times_every_scale_is_exact_on_the_device(storage: torch.dtype) -> None:
    # One-hot tokens read single weights out of W2: o = a[i] * w. 16 nibbles x 240 finite scales
    # fit one expert.
    scales = torch.tensor([b for b in range(256) if b & 0x7F != 0x7F], dtype=torch.uint8)
    packed = torch.full((1, HIDDEN, 80), 0x22, dtype=torch.uint8)
    scale = torch.full((1, HIDDEN, 10), 0x38, dtype=torch.uint8)
    for nibble in range(16):
        rows = slice(nibble * 16, nibble * 16 + 16)
        packed[0, rows] = nibble | nibble << 4
        scale[0, rows] = (
            scales.repeat(2)[:160].view(16, 10)
            if nibble % 2
            else scales.flip(0).repeat(2)[:160].view(16, 10)
        )
    w13 = synthetic.experts("nvfp4", storage, count=1)
    experts = dataclasses.replace(
        w13, w2=packed, w2_scale=scale.view(torch.float8_e4m3fn), w2_global=torch.tensor([1.0])
    )
    x = torch.randn(1, HIDDEN, generator=torch.Generator().manual_seed(1)).to(storage)
    routing = (torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.int32))
    buffers = emulated(x, experts, routing, variant=launch.INLINE)
    assert stage_errors(buffers, x, experts, routing)[1] <= BOUND


# ---- refusals ------------------------------------------------------------------------------------


def refusals() -> dict[str, tuple[str, object]]:
    return {
        "x of float32": ("x", lambda x: x.float()),
        "x of the wrong width": ("x", lambda x: x[:, :-16]),
        "x not contiguous": ("x", lambda x: x.T.contiguous().T),
        "x misaligned": ("x", lambda x: torch.cat([x, x], 1)[:, 1 : 1 + HIDDEN]),
        "no rows": ("x", lambda x: x[:0]),
        "x on another device": ("x", lambda x: x.to("meta")),
        "ids of int64": ("ids", lambda ids: ids.long()),
        "ids transposed": ("ids", lambda ids: ids.T.contiguous().T),
        "ids of another batch": ("ids", lambda ids: ids[:1]),
        "weights of float16": ("weights", lambda weights: weights.half()),
        "weights of another K": ("weights", lambda weights: weights[:, :1].contiguous()),
        "w13 of int8": ("w13", lambda w: w.view(torch.int8)),
        "w13 of another width": ("w13", lambda w: w[:, :, :-8].contiguous()),
        "w13 strided": ("w13", lambda w: torch.cat([w, w], 2)[:, :, : w.shape[2]]),
        "w2 of another I": ("w2", lambda w: w[:, :, :-8].contiguous()),
        "scale of uint8": ("w2_scale", lambda s: s.view(torch.uint8)),
        "scale missing": ("w2_scale", lambda s: None),
        "global scale of another shape": ("w13_global", lambda g: g[:, :1].contiguous()),
    }


@pytest.mark.parametrize("name", refusals())
def test_out_of_contract_calls_are_refused(name: str) -> None:
    x, experts, (weights, ids) = inputs("nvfp4", torch.float16, rows=3)
    which, change = refusals()[name]
    values = {"x": x, "weights": weights, "ids": ids}
    if which in values:
        values[which] = change(values[which])  # type: ignore[operator]
    else:
        experts = dataclasses.replace(experts, **{which: change(getattr(experts, which))})  # type: ignore[operator]
    with pytest.raises(ContractError, match="expected"):
        launch.check(values["x"], experts, values["weights"], values["ids"])


def test_too_many_routes_are_refused_and_the_route_falls_back_counted() -> None:
    x, experts, _ = inputs("nvfp4", torch.float16, rows=3)
    rows = MAX_ROUTES // 4 + 1
    wide = x[:1].expand(rows, HIDDEN).contiguous()
    routing = synthetic.routing(rows, count=12, top_k=4)
    with pytest.raises(ContractError, match="routes"):
        launch.check(wide, experts, *routing)
    counters.reset()
    sentinel = torch.zeros(1)
    out = op.moe_or(lambda: sentinel, wide, experts, topk_weights=routing[0], topk_ids=routing[1])
    assert out is sentinel
    assert counters.snapshot()["cpu"]["moe_grouped.fallback.m"] == {">64": 1}


@pytest.mark.parametrize("name", ["w13_scale", "w2_scale", "w13_global", "w2_global"])
def test_scales_that_are_not_numbers_are_refused_at_load(name: str) -> None:
    _, experts, _ = inputs("nvfp4", torch.float16, rows=1)
    launch.prepare(experts, torch.float16)
    getattr(experts, name).flatten()[3] = float("nan")
    with pytest.raises(ContractError, match=name):
        launch.prepare(experts, torch.float16)


# ---- the torch operation -------------------------------------------------------------------------


def test_operation_counts_hits_and_equals_the_oracle() -> None:
    x, experts, (weights, ids) = inputs("nvfp4", torch.bfloat16, rows=4)
    counters.reset()
    y = op.moe_or(
        lambda: pytest.fail("must not fall back"), x, experts, topk_weights=weights, topk_ids=ids
    )
    device = emulated(x, experts, (weights, ids), variant=launch.INLINE)
    assert relative_l2(device.y, y) < 1e-3
    assert counters.snapshot()["cpu"]["moe_grouped.hit"] == {"4": 1}
    one = op.moe_or(lambda: x[:1], x[:1], experts, topk_weights=weights[:1], topk_ids=ids[:1])
    assert torch.equal(one, x[:1])
    assert counters.snapshot()["cpu"]["moe_grouped.fallback.m"] == {"1": 1}
    bad = op.moe_or(lambda: x, x.float(), experts, topk_weights=weights, topk_ids=ids)
    assert bad is x
    assert counters.snapshot()["cpu"]["moe_grouped.fallback.contract"] == {"4": 1}


def test_device_counts_its_hits_by_width() -> None:
    x, experts, routing = inputs("nvfp4", torch.float16, rows=4)
    for variant in launch.VARIANTS.values():
        row = torch.zeros(counters.COLUMNS, dtype=torch.int64)
        emulated(x, experts, routing, variant=variant, hits=row.data_ptr())
        assert row[4] == 1
        assert row.sum() == 1


def test_fake_operation_has_the_shape() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, experts, (weights, ids) = inputs("nvfp4", torch.float16, rows=3)
    with FakeTensorMode() as mode:
        fake = [
            t if t is None else mode.from_tensor(t)
            for t in (
                x,
                experts.w13,
                experts.w13_scale,
                experts.w13_global,
                experts.w2,
                experts.w2_scale,
                experts.w2_global,
                weights,
                ids,
            )
        ]
        y = torch.ops.kernels_sm70.moe_grouped(*fake)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
