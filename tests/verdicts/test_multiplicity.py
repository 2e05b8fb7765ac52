"""Several arms and contrasts: Holm, a declared sequence, and A+B judged directly."""

from __future__ import annotations

import pytest

from evalharness.errors import PlanError
from evalharness.verdicts import judge
from evalharness.verdicts.types import NllMargin, OutcomeTable, RunVerdict
from tests.verdicts.build import hide, nll_table, noise, plan, table

EQUAL = {"hc": (0, 0), "aa": (0, 0)}
ARMS = ("hc", "moe", "hc+moe")


def three(hc: tuple[int, int], moe: tuple[int, int], both: tuple[int, int]) -> OutcomeTable:
    return table({"hc": hc, "moe": moe, "hc+moe": both, "aa": (0, 0)})


def verdicts(run: RunVerdict) -> dict[str, str]:
    return {arm.arm: arm.verdict for arm in run.arms}


def test_several_arms_share_alpha_by_holm() -> None:
    # alone, p is .0183 for 3 wins and 3 losses, .0041 for none
    run = judge(plan(arms=ARMS), [three((0, 0), (3, 3), (0, 0))])
    assert verdicts(run) == {"hc": "admitted", "moe": "admitted", "hc+moe": "admitted"}
    run = judge(plan(arms=ARMS), [three((3, 3), (3, 3), (0, 0))])
    assert verdicts(run) == {"hc": "undecided", "moe": "undecided", "hc+moe": "admitted"}
    assert "Holm" in run.arms[0].reason and run.arms[0].cells[0].verdict == "admitted"


def test_unobserved_cases_of_another_arm_can_be_all_that_holm_waits_for() -> None:
    rows = table({"hc": (3, 3), "moe": (0, 0), "aa": (0, 0)})
    run = judge(plan(arms=("hc", "moe")), [hide(rows, "moe", slice(0, 6))])
    # hc passes alone (.0183) and second after moe, but not first: .0183 * 2
    assert verdicts(run) == {"hc": "incomplete", "moe": "incomplete"}
    assert run.arms[0].cells[0].verdict == "admitted"


def test_a_declared_sequence_stops_at_its_first_failure() -> None:
    facts = plan(arms=ARMS, sequence=("hc+moe", "hc", "moe"))
    run = judge(facts, [three((3, 3), (3, 3), (3, 3))])
    assert set(verdicts(run).values()) == {"admitted"}  # each at full alpha
    run = judge(facts, [three((6, 6), (0, 0), (0, 0))])
    assert verdicts(run) == {"hc": "undecided", "moe": "undecided", "hc+moe": "admitted"}
    assert "sequence" in run.arms[1].reason


def test_the_combined_arm_is_judged_directly_never_by_its_parts() -> None:
    run = judge(plan(arms=ARMS), [three((0, 0), (0, 0), (0, 12))])
    assert verdicts(run)["hc+moe"] == "harm shown"
    # 54/51/52/51: effects of one to three cases, and no arm is admitted or accused by them
    run = judge(plan(arms=ARMS), [three((1, 4), (1, 3), (0, 3))])
    effects = {e.name: e.estimate * 64 for e in run.effects[0].effects}
    assert effects == pytest.approx({"A": -2.0, "B": -1.0, "AB": 2.0})
    assert set(verdicts(run).values()) == {"undecided"}


def test_an_arm_outside_the_sequence_is_never_admitted() -> None:
    run = judge(plan(arms=ARMS, sequence=("hc+moe", "hc")), [three((0, 0), (0, 0), (0, 0))])
    assert verdicts(run)["moe"] == "undecided"
    with pytest.raises(PlanError, match="sequence"):
        judge(plan(sequence=("nobody",)), [table(EQUAL)])


def test_harm_is_holm_adjusted_over_the_declared_contrasts() -> None:
    alone = judge(plan(), [table({"hc": (0, 7), "aa": (0, 0)})])
    assert alone.arms[0].verdict == "harm shown"
    many = judge(plan(arms=ARMS, gate_concurrency=(1, 4, 8, 16)), [
        table({"hc": (0, 7 if c == 1 else 0), "moe": (0, 0), "hc+moe": (0, 0), "aa": (0, 0)},
              concurrency=c)
        for c in (1, 4, 8, 16)
    ])  # fmt: skip
    first = many.arms[0].cells[0]
    assert first.p_harm_adjusted == pytest.approx(12 * first.p_harm)
    assert many.arms[0].verdict == "undecided"


def test_an_arms_reason_counts_suite_and_nll_cells_apart() -> None:
    few = NllMargin("decode", nats_per_token=0.005, tail_nats=0.5, tail_share=0.0005)
    facts = plan(gate_concurrency=(1, 4), nll_margins=(few,))
    rows = [table({"hc": (1, 4), "aa": (0, 0)}, concurrency=c) for c in (1, 4)]
    nll = [nll_table({"hc": noise(1), "aa": noise(2)}, concurrency=c) for c in (1, 4)]
    reason = judge(facts, rows, nll).arms[0].reason
    assert reason.endswith("(undecided in 2 suite cells and 2 NLL cells)")
    alone = judge(plan(), rows[:1]).arms[0].reason
    assert "undecided in" not in alone
