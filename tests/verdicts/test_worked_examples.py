"""The worked examples: what must come out for three small tables, at any margin."""

from __future__ import annotations

import pytest

from evalharness.stats import (
    noninferiority,
    sign_test,
    smallest_admitted_margin,
    tango_interval,
)
from evalharness.verdicts import judge
from evalharness.verdicts.types import CellVerdict
from tests.verdicts.build import plan, table


def cell(wins: int, losses: int, *, n: int, right: int, margin: float) -> CellVerdict:
    rows = table({"hc": (wins, losses), "aa": (0, 0)}, n=n, right=right)
    return judge(plan(margins=(("bfcl", margin),)), [rows]).arms[0].cells[0]


@pytest.mark.parametrize(
    ("margin", "verdict"),
    [(0.02, "undecided"), (0.05, "undecided"), (0.10, "undecided"), (0.139, "undecided"),
     (0.14, "admitted")],
)  # fmt: skip
def test_54_v_51(margin: float, verdict: str) -> None:
    found = cell(1, 4, n=64, right=54, margin=margin)
    assert found.verdict == verdict
    assert (found.control_correct, found.candidate_correct) == (54, 51)
    assert (found.table.wins, found.table.losses, found.table.n) == (1, 4, 64)
    assert found.p_harm == sign_test(4, 1).p_one_sided == 0.1875
    assert round(100 * found.lower, 2) == -13.73
    assert round(100 * found.upper, 2) == 2.99
    assert round(100 * found.smallest_margin, 1) == 14.0
    assert -100 * found.lower == pytest.approx(13.7, abs=0.05)  # by the score alone
    assert found.loss_ids == tuple(f"bfcl-{i:04d}" for i in range(4))
    assert found.win_ids == ("bfcl-0063",)


def test_53_v_53_without_discordance() -> None:
    assert cell(0, 0, n=64, right=53, margin=0.10).verdict == "admitted"
    assert cell(0, 0, n=64, right=53, margin=0.05).verdict == "undecided"
    assert 100 * smallest_admitted_margin(0, 0, 64) == pytest.approx(5.83, abs=0.02)


@pytest.mark.parametrize("k", range(7))
def test_53_v_53_is_decided_by_its_wins_and_losses(k: int) -> None:
    assert (cell(k, k, n=64, right=53, margin=0.10).verdict == "admitted") == (k <= 3)
    assert (noninferiority(k, k, 64, 0.10).p_score <= 0.025) == (k <= 4)
    assert (noninferiority(k, k, 64, 0.10, 0.05).verdict == "admitted") == (k <= 6)
    assert (noninferiority(k, k, 64, 0.05, 0.05).verdict == "admitted") == (k == 0)
    assert cell(k, k, n=64, right=53, margin=0.02).verdict == "undecided"


@pytest.mark.parametrize("margin", [0.02, 0.05, 0.10, 0.15, 0.194, 0.207])
def test_16_of_16_against_16_of_16_is_never_a_pass(margin: float) -> None:
    found = cell(0, 0, n=16, right=16, margin=margin)
    assert found.verdict == "undecided"
    assert found.cases_needed_if_equal is not None and found.cases_needed_if_equal > 16


def test_16_of_16_passes_first_at_20_8_points() -> None:
    assert cell(0, 0, n=16, right=16, margin=0.208).verdict == "admitted"
    assert 100 * tango_interval(16, 0, 0, 0).lower == pytest.approx(-19.4, abs=0.05)


def test_undecided_says_how_many_cases_it_would_take() -> None:
    found = cell(1, 4, n=64, right=54, margin=0.05)
    assert found.cases_needed_if_equal is not None
    assert found.cases_needed_as_observed is not None  # 4.69 points lost, 5 allowed: thousands
    assert found.cases_needed_as_observed > 1000 > found.cases_needed_if_equal > 64
    assert cell(1, 4, n=64, right=54, margin=0.04).cases_needed_as_observed is None
    assert str(found.cases_needed_if_equal) in found.reason


@pytest.mark.parametrize("margin", [0.01, 0.05, 0.10, 0.20])
def test_where_none_differed_the_need_says_what_it_assumes(margin: float) -> None:
    """One case in four by chance is an assumption; what passes if none ever differs is not."""
    found = cell(0, 0, n=4, right=2, margin=margin)
    passing = found.cases_needed_as_observed
    assert passing is not None and found.cases_needed_if_equal is not None
    assert noninferiority(0, 0, passing, margin).verdict == "admitted"
    assert noninferiority(0, 0, passing - 1, margin).verdict == "undecided"
    assert passing < found.cases_needed_if_equal
    assert f"about {found.cases_needed_if_equal} cases if 1 case in 4" in found.reason
    assert "assumed: none of 4 did" in found.reason
    assert f"if none ever differs, {passing} cases pass" in found.reason


def test_what_was_observed_is_not_called_assumed() -> None:
    found = cell(1, 4, n=64, right=54, margin=0.05)
    assert "if 5 in 64 differ" in found.reason and "assumed" not in found.reason
