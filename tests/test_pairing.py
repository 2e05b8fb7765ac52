"""Stored cells become paired tables: by identity, nothing forgotten, nothing foreign let in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalharness.errors import StoreError
from evalharness.pairing import (
    Slot,
    arm_names,
    case_ids,
    find_cell,
    nll_tables,
    outcome_tables,
    slots,
    speed_slots,
)
from evalharness.runs import Run
from evalharness.stored_cell import StoredCell, join_shards
from evalharness.stored_rows import CaseNll, CaseScore
from evalharness.types import CellKey, Shard
from evalharness.verdicts.types import CORRECT, UNOBSERVED, WRONG

IDS = ("a", "b", "c", "d")
RIGHT, BAD = CaseScore("correct", "valid", 5, False), CaseScore("wrong", "value", 7, True)
GONE = CaseScore("unobserved", "http_500")


def plan(**changes: Any) -> dict[str, Any]:
    """The part of a frozen plan that pairing reads: one suite of four cases, control and hc."""
    suite = {"suite": "bfcl", "modes": ["tools"], "cases": len(IDS)}
    base: dict[str, Any] = {
        "arms": [{"name": "hc"}, {"name": "control"}],
        "control": "control",
        "aa": False,
        "replays": 1,
        "concurrency": [4],
        "suites": {"bfcl": suite},
        "manifest": {"sha256": "m" * 64},
    }
    return {**base, **changes}


def cell(key: CellKey, **rows: Any) -> StoredCell:
    """A complete stored cell with the given scores or NLL rows."""
    return StoredCell(
        key=key, launch=1, state="complete", reason="", record={}, responses=Path("r.jsonl"),
        scorer="official/1", scores=rows.get("scores", {}), nll=rows.get("nll", {}),
    )  # fmt: skip


def bfcl(arm: str, scores: dict[str, CaseScore], *, replicate: int = 0) -> StoredCell:
    return cell(CellKey(arm, "bfcl", "tools", 4, replicate), scores=scores)


def run_of(*cells: StoredCell, ids: tuple[str, ...] | None = IDS, **changes: Any) -> Run:
    """A run of the cells; `ids` None: its manifest is absent."""
    facts = plan(**changes)
    by_key = {one.key: one for one in cells}
    return Run(
        path=Path("run"), plan=facts, sha256="p" * 64,
        scorers=dict.fromkeys(facts["suites"], "official/1"),
        case_ids={} if ids is None else dict.fromkeys(facts["suites"], ids),
        cells=by_key, aborted=(), servers=(), notes=(), joined=join_shards(by_key),
    )  # fmt: skip


def outcomes(run: Run, *more: Run) -> dict[str, list[list[int]]]:
    """Outcomes of the run's one table by arm: replays x cases."""
    (table,) = outcome_tables([run, *more])
    return {arm: table.of(arm).tolist() for arm in table.arms}


ALL_RIGHT = dict.fromkeys(IDS, RIGHT)


def test_rows_are_joined_by_case_and_not_by_their_place() -> None:
    """In another order, and with another case missing in each arm, every case keeps its own."""
    control = {"d": BAD, "a": RIGHT, "c": RIGHT}
    arm = {"c": RIGHT, "b": BAD, "d": RIGHT}
    found = outcomes(run_of(bfcl("control", control), bfcl("hc", arm)))
    assert found["control"] == [[CORRECT, UNOBSERVED, CORRECT, WRONG]]
    assert found["hc"] == [[UNOBSERVED, WRONG, CORRECT, CORRECT]]
    turned = outcomes(
        run_of(
            bfcl("hc", dict(reversed(arm.items()))),
            bfcl("control", dict(reversed(control.items()))),
        )
    )
    assert turned == found


def test_lengths_and_truncation_follow_their_case() -> None:
    (table,) = outcome_tables(
        [run_of(bfcl("control", {"c": BAD, "a": RIGHT}), bfcl("hc", {"d": GONE, "b": RIGHT}))]
    )
    assert table.lengths is not None and table.truncated is not None
    assert np.array_equal(table.lengths[0, 0], [5, np.nan, 7, np.nan], equal_nan=True)
    assert np.array_equal(table.lengths[1, 0], [np.nan, 5, np.nan, np.nan], equal_nan=True)
    assert table.truncated[0, 0].tolist() == [0, -1, 1, -1]
    assert table.truncated[1, 0].tolist() == [-1, 0, -1, -1]


def test_control_comes_first_then_the_second_launch_then_the_plan() -> None:
    arms = [{"name": "z"}, {"name": "control"}, {"name": "a"}]
    assert arm_names(plan(arms=arms, aa=True)) == ("control", "aa", "z", "a")


def test_a_cell_that_never_ran_is_unobserved_and_its_arm_stays() -> None:
    found = outcomes(run_of(bfcl("control", ALL_RIGHT), aa=True))
    assert found["hc"] == found["aa"] == [[UNOBSERVED] * 4]


def test_a_case_that_no_arm_has_keeps_its_place() -> None:
    short = {"a": RIGHT, "c": RIGHT, "d": RIGHT}
    cells = bfcl("control", short), bfcl("hc", short)
    assert outcomes(run_of(*cells))["hc"] == [[CORRECT, UNOBSERVED, CORRECT, CORRECT]]
    unnamed = run_of(*cells, ids=None)
    assert case_ids([unnamed], "bfcl", "tools") == ("a", "c", "d", "(no row in any arm, 1)")
    assert outcomes(unnamed)["hc"] == [[CORRECT, CORRECT, CORRECT, UNOBSERVED]]


@pytest.mark.parametrize("arm", ["control", "hc"])
def test_a_case_excluded_in_one_arm_leaves_every_arm(arm: str) -> None:
    other = "hc" if arm == "control" else "control"
    left_out = {**ALL_RIGHT, "b": CaseScore("wrong", "excluded:unpassable_gold")}
    run = run_of(bfcl(arm, left_out), bfcl(other, {**ALL_RIGHT, "c": BAD}))
    (table,) = outcome_tables([run])
    assert table.case_ids == ("a", "c", "d")
    assert table.of(other).tolist() == [[CORRECT, WRONG, CORRECT]]
    assert table.of(arm).tolist() == [[CORRECT, CORRECT, CORRECT]]


def test_a_reason_that_only_mentions_an_exclusion_excludes_nothing() -> None:
    rows = {**ALL_RIGHT, "b": CaseScore("wrong", "value_error: excluded: no")}
    (table,) = outcome_tables([run_of(bfcl("control", rows), bfcl("hc", ALL_RIGHT))])
    assert table.case_ids == IDS


def test_a_declared_replay_that_was_never_run_is_unobserved() -> None:
    run = run_of(bfcl("control", ALL_RIGHT), bfcl("hc", ALL_RIGHT), replays=3)
    assert slots([run]) == (Slot(0, 0), Slot(0, 1), Slot(0, 2))
    assert outcomes(run)["hc"] == [[CORRECT] * 4, [UNOBSERVED] * 4, [UNOBSERVED] * 4]


def test_replays_beyond_the_declared_ones_are_kept() -> None:
    run = run_of(*(bfcl("control", ALL_RIGHT, replicate=r) for r in (0, 1)))
    assert slots([run]) == (Slot(0, 0), Slot(0, 1))
    assert outcomes(run)["control"] == [[CORRECT] * 4] * 2


def test_two_runs_are_two_replays_and_the_first_does_not_fill_the_second() -> None:
    first = run_of(bfcl("control", ALL_RIGHT), bfcl("hc", {**ALL_RIGHT, "a": BAD}), replays=2)
    second = run_of(bfcl("control", ALL_RIGHT), bfcl("hc", {**ALL_RIGHT, "d": BAD}), replays=2)
    assert slots([first, second]) == (Slot(0, 0), Slot(1, 0))
    assert outcomes(first, second)["hc"] == [
        [WRONG, CORRECT, CORRECT, CORRECT],
        [CORRECT, CORRECT, CORRECT, WRONG],
    ]


def test_repeats_of_a_speed_suite_are_no_replays() -> None:
    suites = {**plan()["suites"], "speed": {"suite": "speed", "modes": ["decode"], "cases": 4}}
    fast = [cell(CellKey("control", "speed", "decode", 4, r)) for r in range(5)]
    run = run_of(bfcl("control", ALL_RIGHT), *fast, suites=suites, speed_repeats=5)
    assert slots([run]) == (Slot(0, 0),)
    assert speed_slots([run]) == tuple(Slot(0, r) for r in range(5))
    assert [table.suite for table in outcome_tables([run])] == ["bfcl"]


def test_a_row_that_the_manifest_does_not_name_is_refused() -> None:
    run = run_of(bfcl("control", ALL_RIGHT), bfcl("hc", {"a": RIGHT, "stranger": RIGHT}))
    with pytest.raises(StoreError, match="stranger"):
        outcome_tables([run])


def test_more_cases_than_the_plan_has_are_refused_without_a_manifest() -> None:
    run = run_of(bfcl("control", ALL_RIGHT), bfcl("hc", {"stranger": RIGHT}), ids=None)
    with pytest.raises(StoreError, match="rows for 5 cases, the plan has 4"):
        outcome_tables([run])


def test_a_foreign_row_in_a_second_run_is_refused_too() -> None:
    first = run_of(bfcl("control", ALL_RIGHT), bfcl("hc", ALL_RIGHT))
    with pytest.raises(StoreError, match="stranger"):
        outcome_tables([first, run_of(bfcl("control", {"stranger": RIGHT}))])


def test_shards_are_one_cell_and_an_absent_one_is_unobserved() -> None:
    def shard(number: int, rows: dict[str, CaseScore]) -> StoredCell:
        return cell(CellKey("hc", "bfcl", "tools", 4, 0, Shard(number, 2)), scores=rows)

    halves = shard(2, {"d": BAD, "c": RIGHT}), shard(1, {"b": BAD, "a": RIGHT})
    both = run_of(bfcl("control", ALL_RIGHT), *halves)
    found = find_cell([both], Slot(0, 0), where=("bfcl", "tools", 4), arm="hc")
    assert found is not None and found.case_ids == frozenset(IDS)
    assert outcomes(both)["hc"] == [[CORRECT, WRONG, CORRECT, WRONG]]
    half = run_of(bfcl("control", ALL_RIGHT), halves[0])
    assert outcomes(half)["hc"] == [[UNOBSERVED, UNOBSERVED, CORRECT, WRONG]]


NLL_SUITES = {"nll": {"suite": "nll", "modes": ["decode"], "cases": len(IDS)}}


def tokens(arm: str, rows: dict[str, CaseNll]) -> StoredCell:
    return cell(CellKey(arm, "nll", "decode", 4, 0), nll=rows)


def scored(*values: float, first: int = 10) -> CaseNll:
    ids = tuple(range(first, first + len(values)))
    return CaseNll(True, "valid", token_ids=ids, logprobs=values, pure=(True,) * len(values))


def test_log_probabilities_are_joined_by_case_with_cases_of_any_size() -> None:
    control = {"c": scored(-3.0), "a": scored(-1.0, -2.0), "d": scored(-4.0, -5.0, -6.0)}
    arm = {"d": scored(-4.5, -5.5, -6.5), "a": scored(-1.5, -2.5)}
    (table,) = nll_tables(
        [run_of(tokens("control", control), tokens("hc", arm), suites=NLL_SUITES)]
    )
    assert table.sizes.tolist() == [2, 0, 1, 3]
    assert table.logprobs[0, 0].tolist() == [-1, -2, -3, -4, -5, -6]
    assert table.observed[0, 0].tolist() == [True, False, True, True]
    assert table.observed[1, 0].tolist() == [True, False, False, True]
    assert np.isnan(table.logprobs[1, 0, 2]) and table.logprobs[1, 0, 3:].tolist() == [
        -4.5,
        -5.5,
        -6.5,
    ]
    assert table.pure is not None and table.pure[1, 0].tolist() == [True, True, False, *[True] * 3]


def test_other_tokens_than_the_controls_are_unobserved() -> None:
    control = dict.fromkeys(IDS, scored(-1.0, -2.0))
    arm = {**control, "b": scored(-1.0, -2.0, first=11), "c": scored(-1.0)}
    (table,) = nll_tables(
        [run_of(tokens("hc", arm), tokens("control", control), suites=NLL_SUITES)]
    )
    assert table.observed[table.arms.index("hc"), 0].tolist() == [True, False, False, True]
    assert table.observed[0].all()
