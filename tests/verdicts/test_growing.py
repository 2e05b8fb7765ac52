"""The always-valid verdict of a suite that gains cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evalharness.errors import PlanError
from evalharness.verdicts import judge_growing
from evalharness.verdicts.types import OutcomeTable
from tests.verdicts.build import hide, plan, table


def batch(start: int, *, n: int = 64, wins: int = 0, losses: int = 0) -> OutcomeTable:
    rows = table({"hc": (wins, losses)}, n=n, right=n * 3 // 4)
    return replace(rows, case_ids=tuple(f"case-{start + i}" for i in range(n)))


def test_evidence_grows_over_batches_until_it_admits() -> None:
    facts = plan(margins=(("bfcl", 0.05),))
    seen = []
    for count in (1, 2, 3, 6):
        found = judge_growing(facts, [batch(64 * i) for i in range(count)], "hc")
        seen.append((found.verdict, found.cases))
    assert seen[0] == ("undecided", 64) and seen[-1] == ("admitted", 384)
    assert found.evidence.e_value >= 40 and found.evidence.rejected_at is not None


def test_an_admission_stays_although_losses_follow() -> None:
    facts = plan(margins=(("bfcl", 0.10),))
    good = [batch(64 * i) for i in range(3)]
    assert judge_growing(facts, good, "hc").verdict == "admitted"
    later = judge_growing(facts, [*good, batch(999, losses=30)], "hc")
    assert later.verdict == "admitted" and later.evidence.e_value < 40


def test_losses_and_unobserved_cases_are_no_evidence() -> None:
    facts = plan(margins=(("bfcl", 0.05),))
    bad = [batch(64 * i, losses=6) for i in range(6)]
    assert judge_growing(facts, bad, "hc").verdict == "undecided"
    dark = [hide(batch(64 * i), "hc", slice(0, 6)) for i in range(6)]
    assert judge_growing(facts, dark, "hc").evidence == judge_growing(facts, bad, "hc").evidence


def test_reruns_and_mixtures_are_refused() -> None:
    with pytest.raises(PlanError, match="come twice"):
        judge_growing(plan(), [batch(0), batch(32)], "hc")
    for change in ({"scorer": "corrected/1"}, {"concurrency": 16}):
        with pytest.raises(PlanError, match=next(iter(change))):
            judge_growing(plan(), [batch(0), replace(batch(64), **change)], "hc")
    with pytest.raises(PlanError, match="no margin"):
        judge_growing(plan(margins=()), [batch(0)], "hc")
    with pytest.raises(PlanError, match="at least one"):
        judge_growing(plan(), [], "hc")


def test_without_a_plan_it_is_exploratory() -> None:
    many = [batch(64 * i) for i in range(6)]
    assert judge_growing(plan(declared=False), many, "hc").verdict == "exploratory"
