# SPDX-License-Identifier: Apache-2.0
"""Hyper-connections on the CPU: the device code itself, emulated, against the float64 oracle."""

from __future__ import annotations

import itertools

import pytest
import torch

from kernels_sm70 import emulate
from kernels_sm70.contract import PACKAGE_ROOT
from kernels_sm70.gpu_checks import relative_l2, same_bits
from kernels_sm70.hyper_connection import STREAMS, launch, reference, weights
from kernels_sm70.hyper_connection.cases import (
    EPS,
    STAGE_REL_L2,
    Inputs,
    Outputs,
    inputs,
    plans,
    verify,
    verify_whole,
)
from kernels_sm70.hyper_connection.chain import CLUSTERED, COUNTER, FUSED1, FUSED2

CPU = torch.device("cpu")
FP16, BF16 = torch.float16, torch.bfloat16
WAYS = [
    pytest.param(FP16, False, id="fp16"),
    pytest.param(FP16, True, id="fp16-volta"),
    pytest.param(BF16, False, id="bf16"),
]


def emulated(
    given: Inputs,
    *,
    volta: bool = False,
    order: int = emulate.FORWARD,
    source_text: str | None = None,
    form: str = COUNTER,
) -> Outputs:
    """Run the three kernels one after another over poisoned, guarded outputs."""
    (rows, depth), rank = given.residual.shape, given.up.shape[1]
    arena = emulate.Arena()
    widths = (depth, depth, rank, STREAMS, depth // STREAMS)
    out = Outputs(*(arena.empty(rows, n, dtype=given.residual.dtype) for n in widths))
    library = emulate.library("hyper_connection", volta=volta, source_text=source_text)
    for plan in plans(given, out, arch="sm_70" if volta else "sm_90", form=form):
        shape = plan.geometry
        how = emulate.Launch(shape.grid, shape.dynamic_shared_bytes, order, shape.cluster)
        emulate.run(library, plan.entry, plan.args, launch=how)
    arena.check()
    return out


@pytest.mark.parametrize(("dtype", "volta"), WAYS)
@pytest.mark.parametrize("rows", [*range(1, 18), 24])
def test_every_width_meets_the_oracle(rows: int, dtype: torch.dtype, volta: bool) -> None:
    given = inputs(rows, dtype, CPU, seed=rows, hidden=512, rank=64)
    out = emulated(given, volta=volta, order=rows % 3)
    verify(given, out, f"M={rows}")
    verify_whole(given, out, f"M={rows}")


@pytest.mark.parametrize(("dtype", "volta"), WAYS)
def test_real_geometry_meets_the_oracle(dtype: torch.dtype, volta: bool) -> None:
    given = inputs(16, dtype, CPU, seed=1)
    out = emulated(given, volta=volta)
    verify(given, out, "real geometry")
    verify_whole(given, out, "real geometry")


@pytest.mark.slow
@pytest.mark.parametrize("form", [CLUSTERED, FUSED1, FUSED2])
@pytest.mark.parametrize(
    ("rows", "dtype", "order"),
    [(3, FP16, emulate.REVERSE), (16, BF16, emulate.SHUFFLED), (24, FP16, emulate.FORWARD)],
)
def test_cluster_forms_meet_the_oracle(
    rows: int, dtype: torch.dtype, form: str, order: int
) -> None:
    given = inputs(rows, dtype, CPU, seed=rows)
    out = emulated(given, form=form, order=order)
    verify(given, out, form)
    verify_whole(given, out, form)
    if form == CLUSTERED:
        plain = emulated(given)
        pairs = zip(out.all(), plain.all(), strict=True)
        assert all(same_bits(a, b) for a, b in pairs)


@pytest.mark.parametrize(("hidden", "rank"), [(16, 32), (336, 32), (656, 96), (2560, 320)])
def test_ragged_geometries(hidden: int, rank: int) -> None:
    """Depths that are no multiple of a slice, row tiles that are not full."""
    given = inputs(5, FP16, CPU, seed=hidden, hidden=hidden, rank=rank)
    verify(given, emulated(given, order=3), f"hidden {hidden} rank {rank}")


@pytest.mark.parametrize("volta", [False, True])
def test_order_of_threads_and_blocks_does_not_matter(volta: bool) -> None:
    """No race: forward, reverse and shuffled schedules give the same bits."""
    given = inputs(11, FP16, CPU, seed=2, hidden=512, rank=64)
    first = emulated(given, volta=volta)
    for order in (emulate.REVERSE, emulate.SHUFFLED, emulate.SHUFFLED + 7):
        other = emulated(given, volta=volta, order=order)
        pairs = zip(first.all(), other.all(), strict=True)
        assert all(same_bits(a, b) for a, b in pairs)


def test_a_row_with_nan_or_inf_stays_alone() -> None:
    """A broken token gives NaN in its own row and does not touch a bit of the others."""
    given = inputs(6, FP16, CPU, seed=4, hidden=512, rank=64)
    clean = emulated(given)
    given.residual[2, 7] = float("nan")
    given.block[4, 3] = float("inf")
    out = emulated(given)
    for name in ("combined", "normed", "lora", "logits", "mixed"):
        have, want = getattr(out, name), getattr(clean, name)
        for row in (0, 1, 3, 5):
            assert same_bits(have[row], want[row]), (name, row)
    assert out.mixed[2].isnan().all()
    assert out.mixed[4].isnan().all()


def test_without_block_and_without_logits() -> None:
    """The first boundary normalises R itself; a missing J adds the block with weight one."""
    given = inputs(3, FP16, CPU, seed=5, hidden=512, rank=64)
    library = emulate.library("hyper_connection")
    for block, injection in ((None, None), (given.block, None)):
        arena = emulate.Arena()
        combined, normed = (arena.empty(3, 2048, dtype=FP16) for _ in range(2))
        target = None if block is None else combined
        plan = launch.plan_norm(
            given.residual, block, injection, given.norm_weight, target, normed, eps=EPS
        )
        how = emulate.Launch(plan.geometry.grid)
        emulate.run(library, plan.entry, plan.args, launch=how)
        arena.check()
        expected = reference.combine(given.residual, block, injection, FP16)
        source = given.residual if block is None else combined
        assert relative_l2(source, expected) <= STAGE_REL_L2[FP16]
        wanted = reference.norm(source, given.norm_weight, EPS, FP16)
        assert relative_l2(normed, wanted) <= STAGE_REL_L2[FP16]


def test_shared_norm_weight() -> None:
    given = inputs(2, BF16, CPU, seed=6, hidden=512, rank=64)
    given.norm_weight = given.norm_weight[:512].clone()
    verify(given, emulated(given), "shared norm weight")


def test_sharded_up_is_gathered_not_summed() -> None:
    """Each rank writes its own columns from its packed weight; side by side they are the whole."""
    given = inputs(9, FP16, CPU, seed=7, hidden=512, rank=64)
    whole = emulated(given)
    library = emulate.library("hyper_connection")
    arena, pieces = emulate.Arena(), []
    for rank in range(4):
        shard = weights.prepare_up_shard(given.up, ranks=4, rank=rank)
        piece = arena.empty(9, 128, dtype=FP16)
        plan = launch.plan_up(
            whole.lora, shard, whole.normed, piece, arch="sm_90", first_column=128 * rank
        )
        how = emulate.Launch(plan.geometry.grid, plan.geometry.dynamic_shared_bytes)
        emulate.run(library, plan.entry, plan.args, launch=how)
        pieces.append(piece)
    arena.check()
    assert same_bits(weights.gather(pieces), whole.mixed)


def test_down_views_cover_each_row_once() -> None:
    """Four zero-copy views of the down weight give the same lora and logits, piece by piece."""
    given = inputs(4, FP16, CPU, seed=8, hidden=512, rank=128)
    whole = emulated(given)
    library = emulate.library("hyper_connection")
    arena = emulate.Arena()
    lora, logits = arena.empty(4, 128, dtype=FP16), arena.empty(4, STREAMS, dtype=FP16)
    for rank in range(4):
        view = weights.down_view(
            given.down, lora_rows=128, injection_rows=STREAMS, ranks=4, rank=rank
        )
        assert view.untyped_storage().data_ptr() == given.down.untyped_storage().data_ptr()
        piece = lora[:, 32 * rank : 32 * rank + 32]
        workspace = launch.down_workspace(4, 2048, view.shape[0], device=CPU)
        workspace[1].zero_()
        plan = launch.plan_down(
            whole.normed,
            view,
            piece,
            logits if rank == 3 else None,
            arch="sm_90",
            workspace=workspace,
        )
        how = emulate.Launch(plan.geometry.grid, plan.geometry.dynamic_shared_bytes)
        emulate.run(library, plan.entry, plan.args, launch=how)
    arena.check()
    assert same_bits(lora, whole.lora)
    assert same_bits(logits, whole.logits)


def test_up_shard_keeps_its_address_on_reload() -> None:
    up = torch.randn(4 * 128, 32).half()
    shard = weights.prepare_up_shard(up, ranks=2, rank=1)
    address = shard.data_ptr()
    again = weights.prepare_up_shard(up + 1, ranks=2, rank=1, shard=shard)
    assert again.data_ptr() == address
    assert torch.equal(again.view(4, 64, 32), (up + 1).view(4, 128, 32)[:, 64:])


def source() -> str:
    """kernel.cuh as one text, fp16 entries only: half the time to compile."""
    text = (PACKAGE_ROOT / "hyper_connection" / "kernel.cuh").read_text()
    entries = "#if KS_HAS_BF16\nKS_HC_ENTRIES(bf16"
    assert text.count(entries) == 1
    return text.replace(entries, "#if 0\nKS_HC_ENTRIES(bf16")


MUTANTS = {
    "R' not rounded before the norm": (
        "value[i] = round_to<S>(fmaf(added[i], scale, value[i]))",
        "value[i] = fmaf(added[i], scale, value[i])",
    ),
    "logits not divided by the streams": (
        "injection_stride + stream]) / kStreams);",
        "injection_stride + stream]));",
    ),
    "unit injection": ("scale = 2.0f * sigmoid(", "scale = 1.0f + 0.0f * sigmoid("),
    "norm weight of stream 0": (
        "args.weight + (active ? stream * args.stream_weight_stride",
        "args.weight + (active ? 0 * args.stream_weight_stride",
    ),
    "plain RMSNorm weight": ("fmaf(y, affine[i], y)", "y * affine[i]"),
    "mean over all streams": (
        "static_cast<float>(args.hidden)",
        "static_cast<float>(4 * args.hidden)",
    ),
    "P not rounded": (
        "const float t = S::to_float(projected) / kStreams",
        "const float t = sum / kStreams",
    ),
    "silu without the division": (
        "const float t = S::to_float(projected) / kStreams",
        "const float t = S::to_float(projected)",
    ),
    "sigmoid for silu": ("S::from_float(t * sigmoid(t))", "S::from_float(sigmoid(t))"),
    "logits one row early": (
        "weight_row - args.lora_rows] = projected",
        "(weight_row - args.lora_rows + 1) % 4] = projected",
    ),
    "a warp's sums left out": (
        "for (int warp = 0; warp < kDownWarps; ++warp) sum += tiles",
        "for (int warp = 0; warp < kDownWarps - 1; ++warp) sum += tiles",
    ),
    "a slice left out": ("for (int s = 0; s < slices; ++s)", "for (int s = 1; s < slices; ++s)"),
    "row halves swapped": (
        "multiply<S>(acc[t], w_low, w_high, tokens.get",
        "multiply<S>(acc[t], w_high, w_low, tokens.get",
    ),
    "G not rounded": ("sigmoid(round_to<S>(value))", "sigmoid(value)"),
    "sum not divided": ("S::from_float(sum / kStreams)", "S::from_float(sum)"),
    "streams swapped in the mix": (
        "gates[s * kStride + h * kTokens + token]",
        "gates[(s ^ 1) * kStride + h * kTokens + token]",
    ),
    "column halves swapped": ("+ column + 8 * (i & 1)", "+ column + 8 * (1 - (i & 1))"),
    "copies not waited for": ("  wait_async_copies();\n  Accumulator", "  Accumulator"),
    "warp writes over weights in use": (
        "warp * kStride;\n  __syncwarp();",
        "warp * kStride;\n  if (fragment_row() == 0) mine[lane_id() * 8] = 1.0f;",
    ),
    "no barrier before the mix": (
        "    });\n  }\n  __syncthreads();\n  const Payload* const xn",
        "    });\n  }\n  const Payload* const xn",
    ),
}


CLUSTER_MUTANTS = {
    "squares of the own half twice": (
        "squares[token] + squares[kTokens + token]",
        "2.0f * squares[half * kTokens + token]",
    ),
    "squares not waited for": ("  wait_inbox(squares_inbox);\n", ""),
    "sums not waited for": ("  wait_inbox(inbox);\n", ""),
    "a rank left out": (
        "for (int rank = 0; rank < kDownCluster; ++rank)",
        "for (int rank = 0; rank < kDownCluster - 1; ++rank)",
    ),
    "pushed to the wrong rank": (
        "e % kShare, e / kShare, sum_of_warps",
        "e % kShare, kDownCluster - 1 - e / kShare, sum_of_warps",
    ),
    "block of the other half": (
        "args.block + token * args.block_stride + in_stream + 32 * step",
        "args.block + token * args.block_stride + in_slice + 32 * step",
    ),
    "norm weight of the other half": (
        "stream_weight_stride + in_stream",
        "stream_weight_stride + in_slice",
    ),
    "R' stored by nobody": ("if (blockIdx.y == 0 && token < args.rows)", "if (blockIdx.y == 99)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLUSTER_MUTANTS)
def test_cluster_mutants_fail(name: str) -> None:
    old, new = CLUSTER_MUTANTS[name]
    text = source()
    assert old in text, f"the mutant's target is gone: {old}"
    mutated, given = text.replace(old, new), inputs(9, FP16, CPU, seed=1)
    with pytest.raises((AssertionError, emulate.EmulationError)):
        verify(given, emulated(given, source_text=mutated, form=FUSED2), "mutant")


def _caught(mutated: str) -> bool:
    """Whether some case of the oracle refuses the mutated kernels."""
    for rows, order in itertools.product((7, 16), (emulate.FORWARD, emulate.SHUFFLED)):
        given = inputs(rows, FP16, CPU, seed=rows, hidden=640, rank=96)
        try:
            verify(given, emulated(given, order=order, source_text=mutated), "mutant")
        except (AssertionError, emulate.EmulationError):
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_fail(name: str) -> None:
    """The oracle is not blind: each damaged kernel is caught."""
    old, new = MUTANTS[name]
    text = source()
    assert old in text, f"the mutant's target is gone: {old}"
    assert _caught(text.replace(old, new))


def test_the_unmutated_kernels_pass_the_mutants_cases() -> None:
    assert not _caught(source())
