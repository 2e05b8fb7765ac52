# SPDX-License-Identifier: Apache-2.0
"""Operations, routing and refusals of the hyper-connection; its oracle against transformers."""

from __future__ import annotations

import pytest
import torch
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextGatedResidual

from kernels_sm70 import counters
from kernels_sm70.contract import ContractError
from kernels_sm70.gpu_checks import relative_l2
from kernels_sm70.hyper_connection import STREAMS, chain, op, reference, weights
from kernels_sm70.hyper_connection.cases import EPS, Inputs, inputs

CPU = torch.device("cpu")
FP16 = torch.float16
HIDDEN, RANK = 512, 64


def small(rows: int = 4, dtype: torch.dtype = FP16) -> Inputs:
    return inputs(rows, dtype, CPU, seed=rows, hidden=HIDDEN, rank=RANK)


def boundary(given: Inputs, **changes: object) -> tuple[torch.Tensor, ...]:
    arguments: dict[str, object] = {
        "norm_weight": given.norm_weight,
        "down": given.down,
        "up": given.up,
        "eps": EPS,
        "injection_rows": STREAMS,
    }
    arguments |= {key: value for key, value in changes.items() if key in arguments}
    first = [changes.get(name, getattr(given, name)) for name in ("residual", "block", "injection")]
    return op.boundary(*first, **arguments)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def module() -> Qwen4ExpTextGatedResidual:
    torch.manual_seed(0)
    config = Qwen4ExpTextConfig(
        hidden_size=HIDDEN, hc_count=STREAMS, hc_lowrank=RANK, rms_norm_eps=EPS
    )
    made = Qwen4ExpTextGatedResidual(config).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.05)
    return made


def test_the_oracle_is_transformers_module(module: Qwen4ExpTextGatedResidual) -> None:
    """Without rounding the oracle agrees with an independent implementation.

    To float32 accuracy: transformers' norm computes in float32 whatever the module's dtype.
    """
    residual = torch.randn(7, STREAMS * HIDDEN, dtype=torch.float64)
    block = torch.randn(7, HIDDEN, dtype=torch.float64)
    down = torch.cat((module.input_mix_weight_down.weight, module.block_inject_weight.weight))
    mixed, kept, injection = module(residual)
    combined, found, logits = reference.whole(
        residual,
        None,
        None,
        norm_weight=module.hc_norm.weight,
        down_weight=down,
        up_weight=module.input_mix_weight_up.weight,
        eps=EPS,
        injection_rows=STREAMS,
        storage=torch.float64,
    )
    assert relative_l2(found, mixed) < 1e-6
    assert relative_l2(2 * torch.sigmoid(logits / STREAMS), injection) < 1e-6
    assert torch.equal(combined, kept)
    # The decoder layer's own combine: hyper_input + injection weights x block output, flattened.
    added = kept + (injection.unsqueeze(-1) * block.unsqueeze(-2)).flatten(-2)
    assert relative_l2(reference.combine(residual, block, logits, torch.float64), added) < 1e-6


def test_each_rounding_point_rounds(module: Qwen4ExpTextGatedResidual) -> None:
    """With a storage type every output of the oracle is representable in it."""
    given = small()
    combined, mixed, logits = reference.whole(
        given.residual,
        given.block,
        given.injection,
        norm_weight=given.norm_weight,
        down_weight=given.down,
        up_weight=given.up,
        eps=EPS,
        injection_rows=STREAMS,
        storage=FP16,
    )
    for values in (combined, mixed, logits):
        assert torch.equal(values, values.to(FP16).double())


def test_operation_on_the_cpu_is_the_oracle_and_counts() -> None:
    counters.reset()
    given = small()
    combined, mixed, logits = boundary(given)
    wanted = reference.whole(
        given.residual,
        given.block,
        given.injection,
        norm_weight=given.norm_weight,
        down_weight=given.down,
        up_weight=given.up,
        eps=EPS,
        injection_rows=STREAMS,
        storage=FP16,
    )
    for have, want in zip((combined, mixed, logits), wanted, strict=True):
        assert torch.equal(have.double(), want)
    assert counters.snapshot()["cpu"][op.HIT] == {"4": 1}


def test_first_boundary_keeps_the_residual_itself() -> None:
    given = small()
    combined, _, _ = boundary(given, block=None, injection=None)
    assert combined is given.residual


def test_final_mixer_has_no_logits() -> None:
    given = small()
    down = given.down[:RANK].contiguous()
    _, mixed, logits = boundary(given, down=down, injection_rows=0)
    assert mixed.shape == (4, HIDDEN)
    assert logits.shape == (4, 0)


def test_stages_compose_to_the_boundary() -> None:
    given = small(5)
    ops = torch.ops.kernels_sm70
    combined, normed = ops.hc_combine_norm(
        given.residual, given.block, given.injection, given.norm_weight, EPS
    )
    lora, logits = ops.hc_down(normed, given.down, RANK, STREAMS)
    pieces = []
    for rank in range(2):
        shard = weights.prepare_up_shard(given.up, ranks=2, rank=rank)
        pieces.append(ops.hc_up_mix(lora, shard, normed, rank * HIDDEN // 2))
    whole = boundary(given)
    parts = (combined, weights.gather(pieces), logits)
    assert all(torch.equal(a, b) for a, b in zip(parts, whole, strict=True))


def test_fake_implementations_agree() -> None:
    given = small()
    ops, check = torch.ops.kernels_sm70, torch.library.opcheck
    utils = ("test_schema", "test_faketensor")
    normed = torch.randn(4, STREAMS * HIDDEN).half()
    lora = torch.randn(4, RANK).half()
    first = (given.residual, given.block, given.injection)
    tail = (given.norm_weight, given.down, given.up, EPS, STREAMS)
    check(ops.hc_boundary.default, (*first, *tail), test_utils=utils)
    check(ops.hc_combine_norm.default, (*first, given.norm_weight, EPS), test_utils=utils)
    check(ops.hc_down.default, (normed, given.down, RANK, STREAMS), test_utils=utils)
    check(ops.hc_up_mix.default, (lora, given.up, normed, 0), test_utils=utils)


def route(given: Inputs, **changes: torch.Tensor) -> str | None:
    parts = {"residual": given.residual, "down": given.down, "up": given.up} | changes
    return op.route(parts["residual"], parts["down"], parts["up"], STREAMS)


def test_routes_are_decided_from_shapes() -> None:
    given = small()
    assert route(given) is None
    assert all(route(small(rows)) is None for rows in (2, 3, 16, 17))
    assert route(small(1)) == "m1"
    assert route(small(18)) == "prefill"
    assert route(given, residual=given.residual.float()) == "dtype"
    assert route(given, up=given.up.bfloat16()) == "dtype"
    assert route(given, up=given.up[:, :48]) == "shape"
    assert route(given, down=given.down[:RANK]) == "shape"
    assert route(given, residual=given.residual[:, :100]) == "shape"
    assert route(given, up=given.up.repeat(1, 2)[:, :RANK]) == "layout"
    wide = torch.zeros(4, STREAMS * HIDDEN + 8).half()
    assert route(given, residual=wide[:, 1 : 1 + STREAMS * HIDDEN]) == "layout"
    assert route(given, residual=torch.zeros(2, 2, 8).half()) == "shape"


def test_fallbacks_are_counted_by_reason() -> None:
    counters.reset()
    for reason in op.REASONS:
        op.count_fallback(reason, 70, CPU)
    counts = counters.snapshot()["cpu"]
    assert all(counts[f"hyper_connection.fallback.{r}"] == {">64": 1} for r in op.REASONS)


def _bad() -> dict[str, tuple[dict[str, object], str]]:
    given = small()
    wide = torch.zeros(4, STREAMS * HIDDEN + 8).half()
    return {
        "M = 0": ({"residual": given.residual[:0], "block": given.block[:0]}, "M: expected"),
        "M = 25": ({"residual": torch.zeros(25, STREAMS * HIDDEN).half()}, "M: expected"),
        "float32": ({"residual": given.residual.float()}, "dtype"),
        "block dtype": ({"block": given.block.bfloat16()}, "block dtype"),
        "block rows": ({"block": given.block[:3]}, "block shape"),
        "logits width": ({"injection": given.injection[:, :3]}, "injection shape"),
        "misaligned": ({"residual": wide[:, 1 : 1 + STREAMS * HIDDEN]}, "address"),
        "inner stride": ({"block": torch.zeros(4, 2 * HIDDEN).half()[:, ::2]}, "inner stride"),
        "row stride": ({"block": torch.zeros(4, HIDDEN + 4).half()[:, :HIDDEN]}, "stride of dim"),
        "norm weight": ({"norm_weight": given.norm_weight[:100]}, "norm weight"),
        "down rows": ({"down": given.down[: RANK + 2]}, "down operands"),
        "down view": ({"down": given.down.repeat(1, 2)[:, : STREAMS * HIDDEN]}, "down operands"),
        "up rows": ({"up": given.up[:-64]}, "mixed shape"),
        "rank": ({"up": given.up[:, :48].contiguous()}, "low rank"),
        "hidden": ({"residual": torch.zeros(4, 40).half()}, "hidden size"),
    }


BAD = _bad()


@pytest.mark.parametrize("name", BAD)
def test_out_of_contract_is_refused(name: str) -> None:
    changes, words = BAD[name]
    with pytest.raises(ContractError, match=words):
        boundary(small(), **changes)


@pytest.mark.parametrize(("hidden", "ranks"), [(512, 3), (512, 64), (512, 0)])
def test_unequal_shards_are_refused(hidden: int, ranks: int) -> None:
    with pytest.raises(ContractError, match="ranks"):
        weights.prepare_up_shard(torch.zeros(STREAMS * hidden, 32), ranks=ranks, rank=0)


@pytest.mark.parametrize(
    ("rows", "hidden", "arch", "entries"),
    [
        (4, 2560, "sm_90", ["ks_hc_combine_down2_fp16_t1", "ks_hc_up_mix_fp16_t1"]),
        (
            16,
            2560,
            "sm_90",
            ["ks_hc_combine_norm_fp16", "ks_hc_down_clustered_fp16_t2", "ks_hc_up_mix_fp16_t2"],
        ),
        (
            4,
            2560,
            "sm_70",
            ["ks_hc_combine_norm_fp16", "ks_hc_down_fp16_t1", "ks_hc_up_mix_fp16_t1"],
        ),
        (
            17,
            512,
            "sm_90",
            ["ks_hc_combine_norm_fp16", "ks_hc_down_fp16_t3", "ks_hc_up_mix_fp16_t3"],
        ),
    ],
)
def test_the_form_taken(rows: int, hidden: int, arch: str, entries: list[str]) -> None:
    """Volta and other hidden sizes take the form that needs no cluster."""
    given = inputs(rows, FP16, CPU, seed=1, hidden=hidden, rank=64)
    plans, _ = op._boundary_plans(given, EPS, STREAMS, arch)
    assert [plan.entry for plan in plans] == entries


def test_without_a_block_nothing_is_combined() -> None:
    given = inputs(4, FP16, CPU, seed=1, rank=64)
    bare = chain.Operands(given.residual, None, None, given.norm_weight, given.down, given.up)
    plans, out = op._boundary_plans(bare, EPS, STREAMS, "sm_90")
    assert [plan.entry for plan in plans][:2] == [
        "ks_hc_combine_norm_fp16",
        "ks_hc_down_clustered_fp16_t1",
    ]
    assert out.combined is None
