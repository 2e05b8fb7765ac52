"""What `evalharness plan` prints, and that it says the same as the gate does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from evalharness.cli.main import main
from evalharness.manifest import load_manifest
from evalharness.margins import idle_margins, margin_for
from evalharness.plan_table import (
    can_admit,
    cases_needed,
    cases_table,
    nll_lacks,
    nll_reach,
    points,
    suite_reach,
)
from evalharness.stats import admission_probability, noninferiority
from evalharness.verdicts.nll_tail import tail_test

ROOT = Path(__file__).parents[1]


def test_cases_for_two_points() -> None:
    answer = cases_needed(0.02, 0.05)
    assert (answer.by_score, answer.by_gate) == (1067, 1067)
    assert answer.if_half_lost is not None and answer.if_half_lost > 3 * answer.by_score


def test_the_gate_needs_a_little_more_than_the_score_where_cases_are_few() -> None:
    answer = cases_needed(0.10, 0.02, alpha=0.05)
    assert answer.by_score == 42
    assert answer.by_gate > 42
    rate = 0.01
    for n, exact, enough in ((42, False, True), (42, True, False), (answer.by_gate, True, True)):
        power = admission_probability(n, 0.10, p_win=rate, p_loss=rate, alpha=0.05, exact=exact)
        assert (power >= 0.8) == enough


def test_reach_of_eighty_cases() -> None:
    reach = suite_reach(80, 0.05, margin=0.10)
    assert 100 * reach.smallest_at_power == pytest.approx(9.4, abs=0.05)
    assert reach.loss_budget is not None
    for losses, admitted in ((reach.loss_budget, True), (reach.loss_budget + 1, False)):
        verdict = noninferiority(0, losses, 80, 0.10).verdict
        assert (verdict == "admitted") == admitted
    assert suite_reach(16, 0.05, margin=0.05).loss_budget is None
    assert suite_reach(1319, 0.05).power_at_margin is None


@pytest.mark.parametrize("cases", [1, 2, 4, 8, 16, 64])
def test_power_is_never_promised_below_what_the_gate_can_admit(cases: int) -> None:
    reach = suite_reach(cases, 0.05)
    assert reach.smallest_at_power >= reach.smallest_if_concordant


@pytest.mark.parametrize("cases", [2, 16, 60])
def test_the_tail_of_log_probabilities_is_bounded_as_the_verdict_bounds_it(cases: int) -> None:
    none, sizes = np.zeros(cases), np.full(cases, 30.0)
    verdict = tail_test(none, none, sizes, margin=0.01, alpha=0.025, n_resamples=99, seed=1)
    reach = nll_reach(cases, 30.0)
    assert reach.tail_share == pytest.approx(verdict.floor)
    assert ("for a tail share" in nll_lacks(reach, 0.01)) == (verdict.p > 0.025)
    assert ("60 for the mean" in nll_lacks(reach, 0.01)) == (cases < 60)


def test_the_readmes_plan_can_be_admitted_by_its_own_manifest() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.split("```yaml\n", 1)[1].split("```", 1)[0]
    plan = yaml.safe_load(block)["plan"]
    assert "--manifest manifests/api80.json" in text
    entries = load_manifest(ROOT / "manifests/api80.json").entries.values()
    asked = {entry.name: {"suite": entry.suite, "modes": entry.modes} for entry in entries}
    assert idle_margins(plan["margins"], asked) == []
    for entry in entries:
        cases = len(entry.case_ids)
        for mode in entry.modes:
            margin = margin_for(plan["margins"], entry.name, mode, entry.suite)
            assert can_admit(cases, margin, alpha=plan["alpha"]), entry.name
            likely = suite_reach(cases, 0.05, alpha=plan["alpha"]).smallest_at_power
            assert likely <= margin, f"{entry.name}: {cases} cases carry {likely:.4f}"


def test_points() -> None:
    assert [points(v) for v in (0.05, 0.01, 0.125, 0.0471)] == [
        "5 points", "1 point", "12.5 points", "4.71 points",
    ]  # fmt: skip


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--margin", "0.02", "--discordance", "0.05", "--cases", "80"]) == 0
    out = capsys.readouterr().out
    assert "1067 cases if the arms are equal" in out
    assert "9.41 points" in out
    assert cases_table() in out and "7893/10558" in out
    assert main(["plan", "--margin", "0.02", "--power", "0.3"]) == 2
    assert "expected power" in capsys.readouterr().err
    for bad in (["--margin", "2"], ["--margin", "0.02", "--power", "1.5"], ["--cases", "0"]):
        with pytest.raises(SystemExit, match="2"):
            main(["plan", *bad])
        assert "expected" in capsys.readouterr().err
