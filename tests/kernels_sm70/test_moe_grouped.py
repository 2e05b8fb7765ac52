# SPDX-License-Identifier: Apache-2.0
"""Grouped MoE on the CPU: the device code itself, emulated, against the fp64 oracle; the oracle
against others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_sm70 import counters, emulate
from kernels_sm70.contract import ContractError
from kernels_sm70.gpu_checks import relative_l2, same_bits
from kernels_sm70.moe_grouped import (
    GROUP_ROUTES,
    HIDDEN,
    MAX_ROUTES,
    PLAN_GROUP,
    PLAN_HEADER,
    expected_experts,
    floor_bytes,
    launch,
    op,
    reference,
    synthetic,
)
from kernels_sm70.moe_grouped.launch import Buffers, Experts, Variant

POISON = 0x7FFF
# Per rounding point: a float32 sum that falls on the other side of a rounding boundary moves one
# element by one ulp.
BOUND = {torch.float16: 2e-4, torch.bfloat16: 2e-4}
CASES = [
    pytest.param(torch.float16, False, id="fp16"),
    pytest.param(torch.float16, True, id="fp16-volta-atom"),
    pytest.param(torch.bfloat16, False, id="bf16"),
]


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


@pytest.mark.parametrize("variant", launch.VARIANTS.values(), ids=launch.VARIANTS)
@pytest.mark.parametrize("kind", ["nvfp4", "plain"])
@pytest.mark.parametrize(("storage", "volta"), CASES)
def test_every_variant_meets_the_oracle(
    storage: torch.dtype, volta: bool, kind: str, variant: Variant
) -> None:
    x, experts, routing = inputs(kind, storage, rows=5)
    buffers = emulated(x, experts, routing, variant=variant, volta=volta)
    a_error, o_error, y_equal = stage_errors(buffers, x, experts, routing)
    assert a_error <= BOUND[storage]
    assert o_error <= BOUND[storage]
    assert y_equal


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 16, 17])
def test_every_width_and_many_routes_to_one_expert(rows: int) -> None:
    # Two experts for two slots: each expert has `rows` routes, so groups of 8 and rests of every
    # size occur.
    x, experts, routing = inputs("nvfp4", torch.float16, rows=rows, count=2, top_k=2)
    buffers = emulated(x, experts, routing, variant=launch.variant_for(rows * 2))
    assert int(buffers.plan[0]) == 2 * -(-rows // GROUP_ROUTES)
    a_error, o_error, y_equal = stage_errors(buffers, x, experts, routing)
    assert a_error <= BOUND[x.dtype]
    assert o_error <= BOUND[x.dtype]
    assert y_equal


def test_a_wider_intermediate_takes_several_w2_passes() -> None:
    x, experts, routing = inputs(
        "nvfp4", torch.bfloat16, rows=3, count=3, top_k=2, intermediate=640
    )
    buffers = emulated(x, experts, routing, variant=launch.INLINE)
    a_error, o_error, y_equal = stage_errors(buffers, x, experts, routing)
    assert a_error <= BOUND[x.dtype]
    assert o_error <= BOUND[x.dtype]
    assert y_equal


@pytest.mark.parametrize("variant", launch.VARIANTS.values(), ids=launch.VARIANTS)
def test_the_order_of_blocks_and_threads_changes_no_bit(variant: Variant) -> None:
    x, experts, routing = inputs("nvfp4", torch.float16, rows=4)
    orders = (emulate.FORWARD, emulate.REVERSE, emulate.SHUFFLED, emulate.SHUFFLED + 7)
    runs = [emulated(x, experts, routing, variant=variant, order=order) for order in orders]
    for other in runs[1:]:
        assert same_bits(other.y, runs[0].y)
        assert torch.equal(other.arrivals, runs[0].arrivals) or not variant.fused_reduce


def test_rows_may_be_strided() -> None:
    x, experts, routing = inputs("nvfp4", torch.float16, rows=3)
    wide = torch.full((3, HIDDEN + 64), float("nan"), dtype=x.dtype)
    wide[:, :HIDDEN] = x
    packed = emulated(x, experts, routing, variant=launch.INLINE)
    strided = emulated(wide[:, :HIDDEN], experts, routing, variant=launch.INLINE)
    assert same_bits(packed.y, strided.y)


# ---- the plan ------------------------------------------------------------------------------------


def emulated_plan(
    ids: torch.Tensor, experts: int, *, source_text: str | None = None
) -> torch.Tensor:
    plan = torch.full((PLAN_HEADER + PLAN_GROUP * ids.numel(),), -77, dtype=torch.int32)
    arrivals = torch.full((launch.ARRIVALS,), 5, dtype=torch.int32)
    args = launch.PlanArgs(
        ids.data_ptr(),
        plan.data_ptr(),
        arrivals.data_ptr(),
        None,
        ids.numel(),
        ids.shape[1],
        experts,
    )
    emulate.run(
        emulate.library("moe_grouped", source_text=source_text),
        "ks_moe_plan",
        args,
        launch=emulate.Launch((1, 1, 1)),
    )
    assert not arrivals.any()
    return plan


def live_part(plan: torch.Tensor) -> list[int]:
    return plan[: PLAN_HEADER + PLAN_GROUP * int(plan[0])].tolist()


@st.composite
def id_tables(draw: st.DrawFn) -> torch.Tensor:
    rows, top_k = draw(st.integers(1, 40)), draw(st.integers(1, 12))
    ids = draw(st.lists(st.integers(-1, 9), min_size=rows * top_k, max_size=rows * top_k))
    return torch.tensor(ids, dtype=torch.int32).view(rows, top_k)


@settings(max_examples=40, deadline=None)
@given(id_tables())
def test_plan_equals_the_oracle_for_any_ids(ids: torch.Tensor) -> None:
    assert live_part(emulated_plan(ids, 8)) == live_part(reference.plan(ids, 8))


def test_plan_at_its_limit() -> None:
    ids = torch.arange(MAX_ROUTES, dtype=torch.int32).view(64, 16) % 3
    plan = emulated_plan(ids, 3)
    assert live_part(plan) == live_part(reference.plan(ids, 3))
    places = plan[PLAN_HEADER:].view(-1, PLAN_GROUP)[: int(plan[0])]
    routes = places[:, 4:][places[:, 4:] >= 0]
    assert sorted(routes.tolist()) == list(range(MAX_ROUTES))


PLAN_MUTATIONS = {
    "a group of nine": ("rank - rank % kGroupRoutes", "rank - rank % 9"),
    "earlier steps forgotten": ("skip >= 0 ? leader_group : seen >> 16", "leader_group"),
    "swapped places": ("group[4 + place] = route;", "group[4 + (place ^ 1)] = route;"),
    "one step's counts lost": ("(rank + 1);", "rank;"),
    "dropped ids not counted": ("routes - total[1]", "0"),
    "unused places left": ("group[4 + i] = -1;", "group[4 + i] = 0;"),
}


@pytest.mark.parametrize("mutation", PLAN_MUTATIONS)
def test_mutated_plans_fail_the_oracle(mutation: str) -> None:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(-1, 5, (30, 4), generator=generator, dtype=torch.int32)
    text = only_what_runs(emulate.mutated("moe_grouped", *PLAN_MUTATIONS[mutation]))
    found = emulated_plan(ids, 5, source_text=text)
    assert live_part(found) != live_part(reference.plan(ids, 5))


def test_ids_outside_the_experts_are_dropped_and_counted() -> None:
    x, experts, (weights, ids) = inputs("nvfp4", torch.float16, rows=3)
    ids = ids.clone()
    ids[1] = -1
    ids[2, 1] = experts.w13.shape[0]
    for variant in launch.VARIANTS.values():
        buffers = emulated(x, experts, (weights, ids), variant=variant)
        assert buffers.plan[1:3].tolist() == [ids.numel() - 5, 5]
        assert not buffers.y[1].view(torch.int16).any()
        assert stage_errors(buffers, x, experts, (weights, ids))[2]


def test_no_valid_route_at_all_gives_zeros() -> None:
    x, experts, (weights, ids) = inputs("nvfp4", torch.float16, rows=2)
    for variant in launch.VARIANTS.values():
        buffers = emulated(x, experts, (weights, torch.full_like(ids, -1)), variant=variant)
        assert not buffers.y.view(torch.int16).any()


# ---- mutations: each must fail the oracle --------------------------------------------------------

MUTATIONS = {
    "dropped rounding of h": ("round_to<S>(gate * gate_scale)", "(gate * gate_scale)"),
    "gate and up swapped": (
        "S::from_float(silu * h_up)",
        "S::from_float(h_gate * h_up / (1.0f + expf(-h_up)))",
    ),
    "swapped route index": (
        "group[4 + column]) * args.intermediate",
        "group[3 + group[1] - column]) * args.intermediate",
    ),
    "swapped nibbles": ("chunk.raw.x, first", "chunk.raw.y, first"),
    "second scale for the first block": (
        "scale_pair<S>(chunk.scales & 0xffu)",
        "scale_pair<S>(chunk.scales >> 8)",
    ),
    "lost sign": ("& 0x80008000u);", "& 0x00000000u);"),
    "one K part dropped": (
        "for (int s = 1; s < kSplitK; ++s)",
        "for (int s = 1; s < kSplitK - 1; ++s)",
    ),
    "up takes the gate's global scale": ("2 * group[0] + 1);", "2 * group[0]);"),
    "slots added in reverse": (
        "const int id = args.topk_ids[first + slot];",
        "const int first = token * args.top_k + args.top_k - 1 - 2 * slot;"
        "const int id = args.topk_ids[first + slot];",
    ),
    "sum not fused": ("fmaf(weight, o[i], sum[i])", "(weight * o[i] + sum[i])"),
    "wrong token of a route": ("group[4 + token] / args.top_k", "group[4 + token] % args.top_k"),
    "last block forgets a token": (
        "token < tokens; token += kWarps",
        "token < tokens - 1; token += kWarps",
    ),
}


@pytest.fixture(scope="module")
def mutation_inputs() -> Iterator[tuple[torch.Tensor, Experts, tuple[torch.Tensor, torch.Tensor]]]:
    # bf16, where a lost rounding shows most. One expert twice, with weights that cancel: what is
    # left
    # of its output is rounding, so that the order and the fusion of the slot sum show.
    x, experts, (weights, ids) = inputs("nvfp4", torch.bfloat16, rows=6, count=4, top_k=3)
    ids[:, 1] = ids[:, 0]
    yield x, experts, (torch.tensor([[12345678.9, -12345678.3, 0.3]]).repeat(6, 1) + weights, ids)


def only_what_runs(text: str) -> str:
    """Drop the entries the mutation tests do not run: compiling is most of their time."""
    for unused in (
        "KS_MOE_STORAGE(fp16, ks::Fp16)\n",
        "KS_MOE_ENTRIES(plain_##name, S, ks::moe::Plain)",
    ):
        assert unused in text
        text = text.replace(unused, "")
    return text


def test_unmutated_device_code_passes(
    mutation_inputs: tuple[torch.Tensor, Experts, tuple[torch.Tensor, torch.Tensor]],
) -> None:
    x, experts, routing = mutation_inputs
    a_error, o_error, y_equal = stage_errors(
        emulated(x, experts, routing, variant=launch.INLINE), *mutation_inputs
    )
    assert a_error <= BOUND[x.dtype]
    assert o_error <= BOUND[x.dtype]
    assert y_equal


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutated_device_code_fails_the_oracle(
    mutation: str, mutation_inputs: tuple[torch.Tensor, Experts, tuple[torch.Tensor, torch.Tensor]]
) -> None:
    text = only_what_runs(emulate.mutated("moe_grouped", *MUTATIONS[mutation]))
    x, experts, routing = mutation_inputs
    buffers = emulated(x, experts, routing, variant=launch.INLINE, source_text=text)
    a_error, o_error, y_equal = stage_errors(buffers, x, experts, routing)
    assert not (a_error <= BOUND[x.dtype] and o_error <= BOUND[x.dtype] and y_equal)


def test_a_missing_barrier_shows_under_another_order(
    mutation_inputs: tuple[torch.Tensor, Experts, tuple[torch.Tensor, torch.Tensor]],
) -> None:
    text = emulate.mutated("moe_grouped", "__syncthreads();\n    finish(", "finish(")
    text = only_what_runs(text)
    x, experts, routing = mutation_inputs
    buffers = emulated(
        x, experts, routing, variant=launch.INLINE, source_text=text, order=emulate.REVERSE
    )
    assert not stage_errors(buffers, x, experts, routing)[0] <= BOUND[x.dtype]


# ---- payloads that are not numbers ---------------------------------------------------------------


@pytest.mark.parametrize("payload", [float("nan"), float("inf"), float("-inf")])
def test_a_bad_token_spoils_its_own_row_only(payload: float) -> None:
    x, experts, routing = inputs("nvfp4", torch.float16, rows=4, count=3, top_k=2)
    clean = emulated(x, experts, routing, variant=launch.INLINE)
    x[2, 17] = payload
    spoiled = emulated(x, experts, routing, variant=launch.INLINE)
    assert not torch.isfinite(spoiled.y[2]).any()
    for row in (0, 1, 3):
        assert same_bits(spoiled.y[row], clean.y[row])


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
    assert stage_errors(buffers, x, experts, routing)[1] <= BOUND[storage]


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


def test_floors_are_those_of_the_geometry() -> None:
    # 691,200 bytes an expert; 38.8, 74.7 and 138.6 experts at 4, 8 and 16 uniform tokens.
    assert floor_bytes(0, kind="nvfp4", distinct=1) == 691_200
    assert floor_bytes(0, kind="plain", distinct=1) == 2_457_600
    assert [round(expected_experts(m), 1) for m in (4, 8, 16)] == [38.8, 74.7, 138.6]
