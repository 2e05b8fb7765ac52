"""What `evalharness plan` prints, and that it says the same as the gate does."""

from __future__ import annotations

import pytest

from evalharness.cli.main import main
from evalharness.plan_table import cases_needed, cases_table, points, suite_reach
from evalharness.stats import admission_probability, noninferiority


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
