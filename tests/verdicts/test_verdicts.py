"""Precedence, the bounds of the unobserved, A/A, multiplicity, refusals: one planted set each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalharness.errors import PlanError
from evalharness.verdicts import judge
from evalharness.verdicts.types import UNOBSERVED, OutcomeTable, PlanFacts
from tests.verdicts.build import hide, plan, table

EQUAL = {"hc": (0, 0), "aa": (0, 0)}


def verdict_of(facts: PlanFacts, *tables: OutcomeTable) -> tuple[str, int]:
    run = judge(facts, tables)
    return run.arms[0].verdict, run.exit_code


def test_admitted() -> None:
    assert verdict_of(plan(), table(EQUAL)) == ("admitted", 0)


def test_undecided() -> None:
    assert verdict_of(plan(), table({"hc": (1, 4), "aa": (0, 0)})) == ("undecided", 10)


def test_harm_shown() -> None:
    run = judge(plan(), [table({"hc": (0, 12), "aa": (0, 0)})])
    assert (run.arms[0].verdict, run.exit_code) == ("harm shown", 11)
    assert "losses outnumber wins" in run.arms[0].reason


def test_admitted_with_a_real_loss_inside_the_margin() -> None:
    rows = table({"hc": (0, 8), "aa": (0, 0)}, n=400, right=330)
    run = judge(plan(), [rows])
    assert run.arms[0].verdict == "admitted"
    assert any("real loss inside the margin" in note for note in run.arms[0].notes)


@pytest.mark.parametrize("hidden", ["hc", "control"])
def test_unobserved_cases_that_could_flip_are_incomplete(hidden: str) -> None:
    rows = hide(table(EQUAL), hidden, slice(0, 5) if hidden == "hc" else slice(55, 60))
    run = judge(plan(), [rows])
    found = run.arms[0].cells[0]
    assert (run.arms[0].verdict, run.exit_code) == ("incomplete", 12)
    assert (found.table.wins, found.table.losses) == (0, 5)
    assert found.p > 0.025 >= found.p_best
    assert len(found.unobserved_ids) == 5
    assert "5 unobserved cases" in found.reason


def test_unobserved_on_both_sides_is_a_loss_at_worst() -> None:
    rows = hide(hide(table(EQUAL), "hc", slice(60, 64)), "control", slice(60, 64))
    found = judge(plan(), [rows]).arms[0].cells[0]
    assert (found.table.losses, found.verdict) == (4, "incomplete")
    assert (found.unobserved_control, found.unobserved_candidate) == (4, 4)


def test_losses_that_nobody_saw_are_said_and_give_no_number_of_cases() -> None:
    lost = hide(table({"hc": (0, 0), "aa": (0, 0)}, n=4, right=2), "hc", slice(0, 4))
    found = judge(plan(), [lost]).arms[0]
    (cell,) = found.cells
    assert cell.verdict == found.verdict == "undecided"
    seen = "(0 wins, 2 losses in 4; 4 of 4 unobserved, counted against the arm)"
    assert seen in cell.reason and seen in found.reason
    assert (cell.cases_needed_if_equal, cell.cases_needed_as_observed) == (None, None)
    assert "80% power" not in cell.reason
    (whole,) = judge(plan(), [table({"hc": (0, 2), "aa": (0, 0)}, n=4, right=2)]).arms[0].cells
    assert "unobserved" not in whole.reason and whole.cases_needed_if_equal is not None


def test_an_admission_where_the_control_is_never_right_says_so() -> None:
    facts = plan(suites=(("bfcl", "tools"), ("schema", "prompt")), gate_concurrency=(1, 4),
                 margins=(("bfcl", 0.1), ("schema", 0.1)))  # fmt: skip
    tables = [
        table(EQUAL, suite=suite, mode=mode, concurrency=level, right=right)
        for suite, mode, right in (("bfcl", "tools", 54), ("schema", "prompt", 0))
        for level in (1, 4)
    ]
    found = judge(facts, tables)
    assert (found.arms[0].verdict, found.exit_code) == ("admitted", 0)
    end = ": the control is right in none, no loss could show)"
    assert found.arms[0].reason.endswith(f" (schema.prompt C1 C4{end}")
    for cell in found.arms[0].cells:
        here = f" ({cell.suite}.{cell.mode} C{cell.concurrency}{end}"
        assert cell.reason.endswith(here) == (cell.suite == "schema")
    one_right = table(EQUAL, right=1)
    assert "right in none" not in judge(plan(), [one_right]).arms[0].reason


def test_unobserved_cases_that_cannot_flip_leave_the_verdict() -> None:
    few = hide(table(EQUAL, n=400, right=330), "hc", slice(0, 2))
    assert verdict_of(plan(), few) == ("admitted", 0)
    harmed = hide(table({"hc": (0, 30), "aa": (0, 0)}), "hc", slice(40, 42))
    assert verdict_of(plan(), harmed) == ("harm shown", 11)


def test_harm_that_only_unobserved_cases_would_make_is_incomplete() -> None:
    dead = hide(table(EQUAL), "hc", slice(0, 64))
    assert verdict_of(plan(), dead) == ("incomplete", 12)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.integers(0, 14), st.integers(0, 12))
def test_a_verdict_that_is_not_incomplete_holds_for_every_completion(
    seed: int, wins: int, losses: int, hidden: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = table({"hc": (wins, losses), "aa": (0, 0)}, n=64, right=50)
    cube = rows.outcomes.copy()
    where = rng.choice(64, hidden, replace=False)
    side = rng.integers(0, 2, hidden)
    cube[side, 0, where] = UNOBSERVED
    facts = plan(aa=None)
    bounded = judge(facts, [replace(rows, outcomes=cube)]).arms[0].verdict
    seen = set()
    for _ in range(5):
        filled = cube.copy()
        filled[side, 0, where] = rng.integers(0, 2, hidden)
        seen.add(judge(facts, [replace(rows, outcomes=filled)]).arms[0].verdict)
    if bounded != "incomplete":
        assert seen == {bounded}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"declared": False}, "no plan"),
        ({"changed": ("margin bfcl: plan 0.05, asked 0.1",)}, "asked 0.1"),
        ({"changed": ("scorer of bfcl: plan official/1, asked corrected/1",)}, "scorer"),
    ],
)
def test_a_plan_missing_or_changed_is_exploratory(change: dict[str, Any], words: str) -> None:
    for arms in (EQUAL, {"hc": (0, 20), "aa": (0, 0)}):
        run = judge(plan(**change), [table(arms)])
        assert (run.arms[0].verdict, run.exit_code) == ("exploratory", 10)
        assert run.arms[0].cells[0].verdict == "exploratory"
        assert any(words in reason for reason in run.exploratory)
    assert run.arms[0].underlying == "harm shown"


def test_an_aa_launch_that_differs_admits_nobody() -> None:
    for wins, losses in ((0, 14), (10, 0)):  # a drifted control flatters as much as it accuses
        run = judge(plan(), [table({"hc": (0, 0), "aa": (wins, losses)})])
        assert run.aa[0].failed
        assert run.arms[0].verdict == "undecided"
        assert "nobody is admitted" in run.arms[0].reason
        assert run.arms[0].p == 1.0


def test_an_aa_difference_must_hold_over_all_cells_looked_at() -> None:
    """Of a dozen quiet cells one in five runs would otherwise fail by chance."""
    odd = {"hc": (0, 0), "aa": (0, 6)}
    assert judge(plan(), [table(odd)]).aa[0].failed  # p .0156 alone
    levels = (1, 4, 8, 16)
    tables = [table(odd if c == 1 else EQUAL, concurrency=c) for c in levels]
    run = judge(plan(gate_concurrency=levels), tables)
    assert not any(check.failed for check in run.aa)
    assert run.arms[0].verdict == "admitted"


def test_a_table_without_cases_is_missing_data() -> None:
    assert verdict_of(plan(), table({"hc": (0, 0), "aa": (0, 0)}, n=0, right=0))[0] == "incomplete"


def test_a_missing_or_unseen_aa_launch_is_incomplete() -> None:
    gone = hide(table(EQUAL), "aa", slice(0, 64))
    assert verdict_of(plan(), gone) == ("incomplete", 12)
    assert verdict_of(plan(), table({"hc": (0, 0)})) == ("incomplete", 12)
    undeclared = judge(plan(aa=None), [table({"hc": (0, 0)})])
    assert undeclared.arms[0].verdict == "admitted"
    assert "no A/A launch" in undeclared.arms[0].cells[0].notes[0]


def test_every_suite_and_level_must_pass() -> None:
    facts = plan(gate_concurrency=(1, 16), suites=(("bfcl", "tools"),))
    good, bad = table(EQUAL), table({"hc": (1, 4), "aa": (0, 0)}, concurrency=16)
    assert verdict_of(facts, good, bad) == ("undecided", 10)
    both = judge(facts, [good, table({"hc": (3, 3), "aa": (0, 0)}, concurrency=16)])
    assert both.arms[0].verdict == "admitted"
    p_values = [c.p for c in both.arms[0].cells]
    assert p_values[0] < p_values[1] == both.arms[0].p  # each at full alpha, the largest counts
    described = judge(facts, [good, table(EQUAL, concurrency=16),
                              table({"hc": (0, 12), "aa": (0, 0)}, concurrency=4)])  # fmt: skip
    assert described.arms[0].verdict == "admitted"  # C4 does not gate, and still says its harm
    assert [c.verdict for c in described.arms[0].cells] == ["admitted", "admitted", "harm shown"]


def test_a_declared_cell_without_data_is_incomplete() -> None:
    run = judge(plan(gate_concurrency=(1, 16)), [table(EQUAL)])
    assert run.arms[0].verdict == "incomplete"
    assert "bfcl.tools C16" in run.arms[0].reason


def test_a_suite_without_a_margin_is_described_not_judged() -> None:
    free = table({"hc": (1, 4), "aa": (0, 0)}, suite="gsm8k", mode="chat")
    run = judge(plan(suites=(("bfcl", "tools"), ("gsm8k", "chat"))), [table(EQUAL), free])
    assert run.arms[0].verdict == "admitted"
    assert not run.arms[0].cells[1].gate
    assert "no margin declared" in run.arms[0].cells[1].reason
    assert "gsm8k.chat" in run.arms[0].notes[-1]
    nothing = judge(plan(margins=()), [table(EQUAL)])
    assert (nothing.arms[0].verdict, nothing.exit_code) == ("undecided", 10)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"manifest": "x"}, "manifest differs"), ({"scorer": "corrected/1"}, "scorer differs")],
)
def test_mixed_tables_are_refused_with_the_difference_named(
    change: dict[str, Any], words: str
) -> None:
    other = replace(table(EQUAL, concurrency=4), **change)
    with pytest.raises(PlanError, match=words):
        judge(plan(), [table(EQUAL), other])
    twice = replace(table(EQUAL, n=2, right=1), case_ids=("case", "case"))
    with pytest.raises(PlanError, match="distinct cases"):
        judge(plan(), [twice])
    with pytest.raises(PlanError, match="more than one table"):
        judge(plan(), [table(EQUAL), table(EQUAL)])


def test_length_and_truncation_stand_beside_their_aa() -> None:
    rng = np.random.default_rng(6)
    lengths = rng.integers(20, 60, size=(1, 1, 64)) + np.array([0.0, 9.0, 0.0])[:, None, None]
    cut = np.zeros((3, 1, 64), dtype=np.int8)
    cut[1, 0, :12] = 1
    rows = replace(table(EQUAL), lengths=lengths, truncated=cut)
    found = judge(plan(), [rows]).arms[0].cells[0]
    assert found.length is not None and found.length_aa is not None
    assert found.length.estimate == pytest.approx(9) and found.length_aa.estimate == 0
    assert found.truncation is not None and found.truncation_aa is not None
    assert found.truncation.table.wins == 12 and found.truncation.p < 0.001
    assert found.truncation.interval.lower > 0 and found.truncation_aa.p == 1.0


def test_reach_says_what_the_run_could_not_say() -> None:
    reach = judge(plan(), [table(EQUAL)]).reach[0]
    assert 100 * reach.smallest_if_concordant == pytest.approx(5.83, abs=0.02)
    assert 100 * reach.smallest_at_power_80 == pytest.approx(10.9, abs=0.05)
