# SPDX-License-Identifier: Apache-2.0
"""Grouped MoE on the CPU: the device code itself, emulated, against the fp64 oracle, stage by
stage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from kernels_sm70 import emulate
from kernels_sm70.gpu_checks import same_bits
from kernels_sm70.moe_grouped import (
    GROUP_ROUTES,
    HIDDEN,
    expected_experts,
    floor_bytes,
    launch,
)
from kernels_sm70.moe_grouped.experts import Experts
from kernels_sm70.moe_grouped.launch import Variant
from tests.kernels_sm70.moe_support import BOUND, emulated, inputs, only_what_runs, stage_errors

CASES = [
    pytest.param(torch.float16, False, id="fp16"),
    pytest.param(torch.float16, True, id="fp16-volta-atom"),
    pytest.param(torch.bfloat16, False, id="bf16"),
]


@pytest.mark.parametrize("variant", launch.VARIANTS.values(), ids=launch.VARIANTS)
@pytest.mark.parametrize("kind", ["nvfp4", "plain"])
@pytest.mark.parametrize(("storage", "volta"), CASES)
def test_every_variant_meets_the_oracle(
    storage: torch.dtype, volta: bool, kind: str, variant: Variant
) -> None:
    x, experts, routing = inputs(kind, storage, rows=5)
    buffers = emulated(x, experts, routing, variant=variant, volta=volta)
    a_error, o_error, y_equal = stage_errors(buffers, x, experts, routing)
    assert a_error <= BOUND
    assert o_error <= BOUND
    assert y_equal


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 16, 17])
def test_every_width_and_many_routes_to_one_expert(rows: int) -> None:
    # Two experts for two slots: each expert has `rows` routes, so groups of 8 and rests of every
    # size occur.
    x, experts, routing = inputs("nvfp4", torch.float16, rows=rows, count=2, top_k=2)
    buffers = emulated(x, experts, routing, variant=launch.variant_for(rows * 2))
    assert int(buffers.plan[0]) == 2 * -(-rows // GROUP_ROUTES)
    a_error, o_error, y_equal = stage_errors(buffers, x, experts, routing)
    assert a_error <= BOUND
    assert o_error <= BOUND
    assert y_equal


def test_a_wider_intermediate_takes_several_w2_passes() -> None:
    x, experts, routing = inputs(
        "nvfp4", torch.bfloat16, rows=3, count=3, top_k=2, intermediate=640
    )
    buffers = emulated(x, experts, routing, variant=launch.INLINE)
    a_error, o_error, y_equal = stage_errors(buffers, x, experts, routing)
    assert a_error <= BOUND
    assert o_error <= BOUND
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


def test_unmutated_device_code_passes(
    mutation_inputs: tuple[torch.Tensor, Experts, tuple[torch.Tensor, torch.Tensor]],
) -> None:
    x, experts, routing = mutation_inputs
    a_error, o_error, y_equal = stage_errors(
        emulated(x, experts, routing, variant=launch.INLINE), *mutation_inputs
    )
    assert a_error <= BOUND
    assert o_error <= BOUND
    assert y_equal


@pytest.mark.slow  # compiles a mutated source
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutated_device_code_fails_the_oracle(
    mutation: str, mutation_inputs: tuple[torch.Tensor, Experts, tuple[torch.Tensor, torch.Tensor]]
) -> None:
    text = only_what_runs(emulate.mutated("moe_grouped", *MUTATIONS[mutation]))
    x, experts, routing = mutation_inputs
    buffers = emulated(x, experts, routing, variant=launch.INLINE, source_text=text)
    a_error, o_error, y_equal = stage_errors(buffers, x, experts, routing)
    assert not (a_error <= BOUND and o_error <= BOUND and y_equal)


def test_a_missing_barrier_shows_under_another_order(
    mutation_inputs: tuple[torch.Tensor, Experts, tuple[torch.Tensor, torch.Tensor]],
) -> None:
    text = emulate.mutated("moe_grouped", "__syncthreads();\n    finish(", "finish(")
    text = only_what_runs(text)
    x, experts, routing = mutation_inputs
    buffers = emulated(
        x, experts, routing, variant=launch.INLINE, source_text=text, order=emulate.REVERSE
    )
    assert not stage_errors(buffers, x, experts, routing)[0] <= BOUND


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


def test_floors_are_those_of_the_geometry() -> None:
    # 691,200 bytes an expert; 38.8, 74.7 and 138.6 experts at 4, 8 and 16 uniform tokens.
    assert floor_bytes(0, kind="nvfp4", distinct=1) == 691_200
    assert floor_bytes(0, kind="plain", distinct=1) == 2_457_600
    assert [round(expected_experts(m), 1) for m in (4, 8, 16)] == [38.8, 74.7, 138.6]
