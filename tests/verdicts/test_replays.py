"""Replays of a cell and levels of concurrency: kept apart, scaled, never further cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evalharness.stats import design_effect
from evalharness.verdicts import judge
from evalharness.verdicts.gate import effective_counts
from evalharness.verdicts.types import OutcomeTable, PlanFacts
from tests.verdicts.build import plan, table

EQUAL = {"hc": (0, 0), "aa": (0, 0)}


def verdict_of(facts: PlanFacts, *tables: OutcomeTable) -> tuple[str, int]:
    run = judge(facts, tables)
    return run.arms[0].verdict, run.exit_code


def replayed(rows: OutcomeTable, count: int) -> OutcomeTable:
    return replace(rows, outcomes=np.repeat(rows.outcomes, count, axis=1))


def test_replays_beyond_the_declared_are_exploratory() -> None:
    assert verdict_of(plan(), replayed(table(EQUAL), 2)) == ("exploratory", 10)
    assert verdict_of(plan(replays=2), replayed(table(EQUAL), 2)) == ("admitted", 0)


def test_identical_replays_are_worth_no_further_case() -> None:
    once = judge(plan(margins=(("bfcl", 0.055),)), [table(EQUAL)]).arms[0].cells[0]
    facts = plan(replays=4, margins=(("bfcl", 0.055),))
    four = judge(facts, [replayed(table(EQUAL), 4)]).arms[0].cells[0]
    assert four.deff == 4.0
    assert four.p == pytest.approx(once.p, abs=1e-12)
    assert four.verdict == "undecided"
    harm = judge(facts, [replayed(table({"hc": (0, 6), "aa": (0, 0)}), 4)]).arms[0].cells[0]
    assert harm.p_harm == pytest.approx(2.0**-6)
    assert harm.table.losses == 24 and len(harm.loss_ids) == 6


def test_excess_discordance_needs_two_replays() -> None:
    one = judge(plan(), [table(EQUAL)]).arms[0].cells[0]
    assert one.excess is None and one.excess_reason.startswith("not estimable")
    rows = replayed(table({"hc": (5, 5), "aa": (0, 0)}), 2)
    two = judge(plan(replays=2), [rows]).arms[0].cells[0]
    assert two.excess is not None
    assert two.excess.excess == pytest.approx(10 / 64)
    assert two.excess.p == pytest.approx(3.0**-10)


def test_effective_counts_are_rounded_against_the_candidate() -> None:
    differences = np.zeros((60, 2), dtype=np.int8)
    differences[:5, :] = -1  # lost in both replays
    differences[5:9, 0] = -1
    differences[9:12, 1] = 1
    deff = design_effect(differences)
    assert 1.1 < deff < 1.9
    counts = effective_counts(differences)
    assert counts.losses == int(np.ceil(14 / deff)) > 14 / deff
    assert counts.wins == int(3 / deff) < 3 / deff
    assert counts.n == int(120 / deff)


def test_pooling_over_concurrency_is_a_summary_and_counts_cases_once() -> None:
    facts = plan(gate_concurrency=(1, 4, 8, 16))
    tables = [table({"hc": (1, 4), "aa": (0, 0)}, concurrency=c) for c in (1, 4, 8, 16)]
    run = judge(facts, tables)
    pooled = run.pooled[0]
    assert pooled.levels == (1, 4, 8, 16)
    assert pooled.deff == pytest.approx(4, rel=0.02)
    assert pooled.n_effective == pytest.approx(64, rel=0.02)
    assert run.arms[0].verdict == "undecided"


def test_a_single_case_with_replays_decides_nothing() -> None:
    one = judge(plan(replays=2), [replayed(table(EQUAL, n=1, right=1), 2)])
    assert one.arms[0].verdict == "undecided"
