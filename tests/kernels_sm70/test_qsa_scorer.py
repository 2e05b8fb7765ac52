# SPDX-License-Identifier: Apache-2.0
"""QSA scorer on the CPU: the emulated device code against fp64, and the oracle chain against
transformers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_sm70 import counters, emulate
from kernels_sm70.contract import ContractError
from kernels_sm70.gpu_checks import relative_l2
from kernels_sm70.qsa_scorer import floor_bytes, launch, op, reference, synthetic
from kernels_sm70.qsa_scorer.launch import Inputs, Schedule

POISON = -12345.0
BOUND = 1e-6
ATOMS = [
    pytest.param(torch.float16, False, id="fp16"),
    pytest.param(torch.float16, True, id="fp16-volta-atom"),
    pytest.param(torch.bfloat16, False, id="bf16"),
]


def emulated(
    inputs: Inputs,
    *,
    schedule: Schedule = Schedule.LIVE,
    volta: bool = False,
    source_text: str | None = None,
    order: int = emulate.FORWARD,
    hits: int = 0,
    blocks: int | None = None,
) -> torch.Tensor:
    """Scores on a poisoned buffer; `blocks` replaces the grid's first extent."""
    scores = torch.full((len(inputs.q), inputs.columns), POISON)
    launch.check(inputs, scores)
    spec, args, geometry = launch.plan(inputs, scores, schedule=schedule, hits=hits)
    grid = (blocks or geometry.grid[0], *geometry.grid[1:])
    lib = emulate.library("qsa_scorer", volta=volta, source_text=source_text)
    emulate.run(lib, spec.entry, args, launch=emulate.Launch(grid, order=order))
    return scores


def error(scores: torch.Tensor, inputs: Inputs) -> float:
    """Relative L2 over what a row may see; infinite if anything else was written."""
    expected = reference.scores(
        inputs.q,
        inputs.keys,
        inputs.page_table,
        inputs.visible,
        rows_per_request=inputs.rows_per_request,
        unwritten=POISON,
    )
    hidden = expected == POISON
    if not scores[hidden].eq(POISON).all():
        return float("inf")
    return relative_l2(scores[~hidden], expected[~hidden])


@pytest.mark.parametrize("schedule", Schedule, ids=lambda s: s.name)
@pytest.mark.parametrize(("storage", "volta"), ATOMS)
def test_every_schedule_meets_the_oracle(
    storage: torch.dtype, volta: bool, schedule: Schedule
) -> None:
    inputs = synthetic.inputs([2000, 3, 0, 515, 128], storage, page_keys=5)
    assert error(emulated(inputs, schedule=schedule, volta=volta), inputs) <= BOUND


@pytest.mark.parametrize("rows_per_request", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("schedule", Schedule, ids=lambda s: s.name)
def test_several_query_rows_a_request(schedule: Schedule, rows_per_request: int) -> None:
    inputs = synthetic.inputs(
        [700, 8], torch.float16, page_keys=49, rows_per_request=rows_per_request
    )
    assert error(emulated(inputs, schedule=schedule), inputs) <= BOUND


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 400])
def test_any_grid_covers_any_context(blocks: int) -> None:
    inputs = synthetic.inputs([3000, 40, 0, 1500], torch.float16, page_keys=196)
    assert error(emulated(inputs, blocks=blocks), inputs) <= BOUND


@pytest.mark.parametrize("requests", [31, 32, 33, 70])
def test_more_requests_than_lanes(requests: int) -> None:
    contexts = [(97 * i) % 300 for i in range(requests)]
    inputs = synthetic.inputs(contexts, torch.float16, page_keys=16)
    assert error(emulated(inputs, blocks=5), inputs) <= BOUND
    assert error(emulated(inputs, order=emulate.SHUFFLED), inputs) <= BOUND


def test_the_live_grid_does_not_grow_with_the_capacity() -> None:
    inputs = synthetic.inputs([300] * 4, torch.float16, capacity=262144)
    resident = launch.BLOCKS_PER_MULTIPROCESSOR * 132
    assert launch.grid(inputs, Schedule.LIVE, 132) == (resident, 1, 1)
    assert launch.grid(inputs, Schedule.CAPACITY, 132)[0] * 4 >= inputs.columns // 32
    assert error(emulated(inputs), inputs) <= BOUND


def test_a_long_context_beside_short_ones() -> None:
    inputs = synthetic.inputs([40000, 4, 900], torch.float16)
    assert error(emulated(inputs), inputs) <= BOUND


def test_missing_pages_score_below_every_real_key() -> None:
    inputs = synthetic.inputs([900, 800], torch.float16, page_keys=16)
    inputs.page_table[0, 3] = -1
    inputs.page_table[1, 0] = len(inputs.keys)
    scores = emulated(inputs)
    assert error(scores, inputs) <= BOUND
    assert scores[0, 48:64].eq(-1).all()
    assert scores[1, :16].eq(-1).all()
    assert scores[0, :48].ge(0).all()


def test_visible_beyond_the_table_is_clamped() -> None:
    inputs = synthetic.inputs([256], torch.float16, page_keys=16)
    inputs.visible.fill_(10_000)
    assert error(emulated(inputs), inputs) <= BOUND


@pytest.mark.parametrize("schedule", Schedule, ids=lambda s: s.name)
def test_relocating_pages_changes_no_bit(schedule: Schedule) -> None:
    inputs = synthetic.inputs([1700, 333], torch.float16, page_keys=20)
    moved = synthetic.relocated(inputs, seed=5)
    assert not torch.equal(inputs.page_table, moved.page_table)
    assert torch.equal(emulated(inputs, schedule=schedule), emulated(moved, schedule=schedule))


def test_schedules_and_orders_agree_bit_for_bit() -> None:
    inputs = synthetic.inputs([1700, 333, 8], torch.float16, rows_per_request=3)
    first = emulated(inputs)
    for schedule in Schedule:
        for order in (emulate.REVERSE, emulate.SHUFFLED, emulate.SHUFFLED + 3):
            assert torch.equal(emulated(inputs, schedule=schedule, order=order), first)


def test_nan_and_infinite_keys_reach_their_own_score_only() -> None:
    inputs = synthetic.inputs([400], torch.float16, page_keys=100)
    assert emulated(inputs)[0].isfinite().all()
    page = int(inputs.page_table[0, 0])
    inputs.keys[page, 7, 3] = float("nan")
    inputs.keys[page, 9, 3] = float("inf")
    inputs.q[0, :, 3] = 1.0
    spoiled = emulated(inputs)
    assert spoiled[0, 7].isnan()
    assert spoiled[0, 9].isinf()
    rest = [c for c in range(100) if c not in (7, 9)]
    assert spoiled[0, rest].isfinite().all()


MUTATIONS = {
    "relu dropped": (
        "stage[(16 * t + row) * kStagePitch + column] = relu(value);",
        "stage[(16 * t + row) * kStagePitch + column] = value;",
    ),
    "relu after the sum": (
        "((head[0] + head[1]) + head[2]) + head[3] : -1.0f",
        "relu(((head[0] + head[1]) + head[2]) - head[3]) : -1.0f",
    ),
    "a head dropped": (
        "((head[0] + head[1]) + head[2]) + head[3]",
        "(head[0] + head[1]) + head[2]",
    ),
    "swapped key index": (
        "low == nullptr ? zero16() : load16_streamed(low + 32 * j + offset)",
        "low == nullptr ? zero16() : load16_streamed(low + 32 * (j ^ 1) + offset)",
    ),
    "high keys one late": ("key0 + fragment_row() + 8, live", "key0 + fragment_row() + 9, live"),
    "last unit forgotten": (
        "return (live + kKeys - 1) / kKeys;",
        "return live / kKeys;",
    ),
    "the first row's visibility for all": ("key < args.visible[row]", "key < args.visible[0]"),
    "page offset as page": ("key / args.page_keys]", "key % args.page_keys]"),
    "a hole scores zero": (": -1.0f;", ": 0.0f;"),
    "second query row of a pair": (
        "head[0] + head[1]) + head[2]) + head[3] :",
        "head[0 - 4 * r] + head[1]) + head[2]) + head[3] :",
    ),
}


@pytest.mark.slow  # compiles a mutated source
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutated_device_code_fails_the_oracle(mutation: str) -> None:
    inputs = synthetic.inputs([700, 90, 2001], torch.float16, page_keys=16, rows_per_request=2)
    inputs.page_table[0, 1] = -1
    text = emulate.mutated("qsa_scorer", *MUTATIONS[mutation])
    assert not error(emulated(inputs, source_text=text), inputs) <= BOUND


REFUSALS: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    "q of float32": lambda i: {"q": i.q.float()},
    "q of another head count": lambda i: {"q": i.q[:, :3].contiguous()},
    "q of another width": lambda i: {"q": i.q[:, :, :64].contiguous()},
    "q with a strided width": lambda i: {"q": i.q.repeat_interleave(2, 2)[:, :, ::2]},
    "q rows misaligned": lambda i: {
        "q": torch.cat([i.q.flatten(1), i.q.flatten(1)], 1)[:, 4 : 4 + 512].view(-1, 4, 128)
    },
    "no requests": lambda i: {
        "q": i.q[:0],
        "page_table": i.page_table[:0],
        "visible": i.visible[:0],
    },
    "keys of another type": lambda i: {"keys": i.keys.bfloat16()},
    "keys with two heads": lambda i: {"keys": torch.stack([i.keys, i.keys], 2)},
    "table of int64": lambda i: {"page_table": i.page_table.long()},
    "table flat": lambda i: {"page_table": i.page_table[0]},
    "visible of int64": lambda i: {"visible": i.visible.long()},
    "rows that are not R x L": lambda i: {"rows_per_request": 2},
    "no rows a request": lambda i: {"rows_per_request": 0},
    "table on another device": lambda i: {"page_table": i.page_table.to("meta")},
    "columns beyond int32": lambda i: {
        "page_table": torch.zeros(1, 1, dtype=torch.int32).expand(2, 1).repeat(1, 2**23)
    },
}


@pytest.mark.parametrize("name", REFUSALS)
def test_out_of_contract_calls_are_refused_and_fall_back_counted(name: str) -> None:
    inputs = synthetic.inputs([900, 800], torch.float16, page_keys=256)
    bad = dataclasses.replace(inputs, **REFUSALS[name](inputs))
    with pytest.raises(ContractError, match="expected"):
        launch.check_inputs(bad)
    counters.reset()
    called: list[object] = []
    op.select_or(
        lambda *args: called.append(args),
        lambda *_: pytest.fail("no scores to rank"),
        bad.q,
        bad.keys,
        bad.page_table,
        bad.visible,
        2048,
        4,
        bad.rows_per_request,
        torch.empty(0),
    )
    assert len(called) == 1
    rows = str(len(bad.q))
    assert counters.snapshot()["cpu"]["qsa_scorer.fallback.contract"] == {rows: 1}


@pytest.mark.parametrize(
    "change", [lambda s: s.double(), lambda s: s[:, 1:], lambda s: s[:1].expand(2, s.shape[1])]
)
def test_bad_outputs_are_refused(change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    inputs = synthetic.inputs([900, 800], torch.float16)
    with pytest.raises(ContractError, match="scores"):
        launch.check(inputs, change(torch.empty(2, inputs.columns)))


def test_selection_by_the_operation_counts_its_hit() -> None:
    inputs = synthetic.inputs([900, 800], torch.float16, page_keys=16)
    chosen = torch.full((2, 512), -1, dtype=torch.int32)
    counters.reset()

    def topk(
        logits: torch.Tensor,
        visible: torch.Tensor,
        budget: int,
        ratio: int,
        out: torch.Tensor,
        _: torch.Tensor,
    ) -> None:
        for row, seen in enumerate(visible.tolist()):
            best = logits[row, :seen].topk(min(seen, budget // ratio)).indices
            out[row, : len(best)] = best.int()

    keys = inputs.keys[:, :, None]  # vLLM's cache has a head axis
    op.select_or(
        lambda *_: pytest.fail("must not fall back"),
        topk,
        inputs.q,
        keys,
        inputs.page_table,
        inputs.visible,
        2048,
        4,
        1,
        chosen,
    )
    assert counters.snapshot()["cpu"][op.HIT] == {"2": 1}
    assert sorted(chosen[0][chosen[0] >= 0].tolist()) == list(range(225))


def test_device_counts_its_hits_by_width() -> None:
    row = torch.zeros(counters.COLUMNS, dtype=torch.int64)
    emulated(synthetic.inputs([900, 800], torch.float16, rows_per_request=2), hits=row.data_ptr())
    assert row[4] == row.sum() == 1


def test_floor_is_that_of_the_design() -> None:
    assert round(floor_bytes(4, 8192) / 1e6, 2) == 2.13
    assert round(floor_bytes(16, 262144) / 1e6) == 273
