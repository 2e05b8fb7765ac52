"""NLL verdicts on planted shifts: either way of the mean, the tail, the noise, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evalharness.verdicts import judge
from evalharness.verdicts.nll_tail import cases_to_bound, tail_test
from evalharness.verdicts.types import NllCellVerdict, NllMargin, NllTable, RunVerdict
from tests.verdicts.build import NLL_MARGIN, nll_plan, nll_table, noise


def run_of(rows: NllTable, **changes: object) -> RunVerdict:
    return judge(nll_plan(**changes), [], [rows])


def cell_of(rows: NllTable, **changes: object) -> NllCellVerdict:
    return run_of(rows, **changes).arms[0].nll_cells[0]


def test_server_noise_alone_is_admitted() -> None:
    run = run_of(nll_table({"hc": noise(1), "aa": noise(2)}))
    cell = run.arms[0].nll_cells[0]
    assert (run.arms[0].verdict, run.exit_code) == ("admitted", 0)
    assert cell.summary is not None and cell.aa is not None
    assert cell.summary.interval.lower <= cell.summary.estimate <= cell.summary.interval.upper
    assert cell.summary.tokens == 80 * 46 == cell.summary.pure_tokens
    assert not cell.aa_failed
    assert run.effects[0].reason.startswith("not estimable")


@pytest.mark.parametrize("shift", [-0.02, 0.02])
def test_a_shift_of_the_mean_is_harm_whichever_way(shift: float) -> None:
    """Sharpened logits raise the log-probability of greedy text: no less a change."""
    run = run_of(nll_table({"hc": noise(1) + shift, "aa": noise(2)}))
    assert (run.arms[0].verdict, run.exit_code) == ("harm shown", 11)
    cell = run.arms[0].nll_cells[0]
    assert cell.summary is not None
    assert cell.summary.estimate == pytest.approx(-shift, abs=1e-3)
    assert cell.summary.perplexity_ratio == pytest.approx(np.exp(-shift), abs=1e-3)
    assert cell.p_harm <= 0.025 < cell.p_mean


def test_a_real_shift_inside_the_margin_is_admitted() -> None:
    cell = cell_of(nll_table({"hc": noise(1) + 0.002, "aa": noise(2)}))
    assert cell.verdict == "admitted"
    assert cell.summary is not None and cell.summary.interval.upper < 0


def spikes(count: int, *, nats: float = 2.0) -> np.ndarray:
    """One token in each of `count` cases moves by `nats`, half of them up: the mean stays."""
    out = noise(3)
    at = np.arange(count) * 46 + 5
    out[at] += nats * np.where(np.arange(count) % 2, 1, -1)
    return out


def test_a_tail_that_the_mean_hides_is_not_admitted() -> None:
    wide = NllMargin("decode", nats_per_token=0.02, tail_nats=0.5, tail_share=0.002)
    cell = cell_of(nll_table({"hc": spikes(12), "aa": noise(2)}), nll_margins=(wide,))
    assert cell.p_mean <= 0.025 < cell.p_tail
    assert cell.verdict == "harm shown"
    assert cell.summary is not None and cell.summary.largest is not None
    assert cell.summary.tail_cases == 12
    assert cell.summary.tail_share == pytest.approx(12 / 3680)
    assert abs(cell.summary.largest.delta) == pytest.approx(2, abs=0.03)
    assert (cell.summary.largest.position, cell.summary.largest.case_id[:4]) == (5, "nll-")
    few = cell_of(nll_table({"hc": spikes(3), "aa": noise(2)}), nll_margins=(wide,))
    assert few.verdict == "undecided" and few.p_tail > 0.025


def test_the_tail_is_measured_against_the_aa_launch() -> None:
    loud = NllMargin("decode", nats_per_token=0.05, tail_nats=0.5, tail_share=0.01)
    aa = spikes(12, nats=1.0)
    same = cell_of(nll_table({"hc": spikes(12, nats=1.0), "aa": aa}), nll_margins=(loud,))
    assert same.tail_excess == 0.0 and same.verdict == "admitted"


def test_an_aa_launch_with_a_loud_tail_or_a_shift_admits_nobody() -> None:
    for aa in (spikes(12), noise(2) + 0.02):
        run = run_of(nll_table({"hc": noise(1), "aa": aa}))
        assert run.aa[0].failed and run.aa[0].nll is not None
        assert run.arms[0].verdict == "undecided"
        assert "nobody is admitted" in run.arms[0].nll_cells[0].reason


def test_a_mean_below_sixty_cases_is_refused() -> None:
    shifts = {"hc": noise(1, cases=59), "aa": noise(2, cases=59)}
    cell = cell_of(nll_table(shifts, cases=59))
    assert cell.verdict == "undecided" and cell.reason.startswith("refused: 59 cases")
    assert cell.p == 1.0
    shifts = {"hc": noise(1, cases=60), "aa": noise(2, cases=60)}
    assert cell_of(nll_table(shifts, cases=60), nll_margins=(
        replace(NLL_MARGIN, tail_share=0.01),)).verdict == "admitted"  # fmt: skip


def test_too_few_cases_for_the_tail_margin_say_so() -> None:
    strict = replace(NLL_MARGIN, tail_share=0.0005)
    cell = cell_of(nll_table({"hc": noise(1), "aa": noise(2)}), nll_margins=(strict,))
    assert cell.verdict == "undecided"
    assert "with no token exceeding at all" in cell.reason
    # 0 of 80 cases: at most 4.5%, one token of 46 each
    assert cell.tail_upper == pytest.approx(0.0451 / 46, rel=0.01)


@pytest.mark.parametrize(
    ("share", "tokens", "alpha"), [(0.01, 2, 0.025), (0.002, 46, 0.025), (0.0005, 16, 0.05)]
)
def test_the_tails_need_is_the_first_number_that_passes(
    share: float, tokens: int, alpha: float
) -> None:
    """A straight line through the bound of 60 cases would say 179 for the first of these."""

    def passes(cases: int) -> bool:
        none = np.zeros(cases)
        found = tail_test(none, none, np.full(cases, float(tokens)), margin=share, alpha=alpha,
                          n_resamples=200, seed=1)  # fmt: skip
        assert (found.p <= alpha) == (found.upper <= share)
        return found.p <= alpha

    needed = cases_to_bound(share, tokens, alpha=alpha)
    assert passes(needed) and not passes(needed - 1)
    if (share, tokens) == (0.01, 2):
        assert needed == 183


def test_an_undecided_cell_says_which_half_passed_and_what_the_other_needs() -> None:
    """Two tokens a case, none moved: the mean is equal, and 60 cases do not bound the tail."""
    zero, wide = np.zeros(120), NllMargin("decode", 0.01, 0.5, 0.01)
    rows = nll_table({"hc": zero, "aa": zero}, cases=60, tokens=2)
    run = run_of(rows, nll_margins=(wide,))
    cell = run.arms[0].nll_cells[0]
    assert (cell.verdict, cell.cases_needed) == ("undecided", 183)
    for words in (
        "the mean is shown equivalent", "p <0.0001 at 0.01 nats", "the tail is not bounded",
        "one moved token a moved case assumed", "passes is 183",
    ):  # fmt: skip
        assert words in cell.reason
    assert any("assumes one moved token" in note for note in cell.notes)


def test_no_number_of_cases_is_named_where_tokens_did_move() -> None:
    """183 bound the tail where none moves; with one that moved, the number is not known."""
    one, zero = np.zeros(120), np.zeros(120)
    one[7] = 2.0
    wide = NllMargin("decode", 0.05, 0.5, 0.01)
    cell = cell_of(nll_table({"hc": one, "aa": zero}, cases=60, tokens=2), nll_margins=(wide,))
    assert cell.verdict == "undecided" and cell.p_tail > 0.025
    assert cell.cases_needed is None
    assert not any("assumes" in note for note in cell.notes)


def test_a_refused_mean_needs_sixty_cases_and_the_tail_its_own() -> None:
    shifts = {"hc": noise(1, cases=40), "aa": noise(2, cases=40)}
    loose = replace(NLL_MARGIN, tail_share=0.01)
    few = cell_of(nll_table(shifts, cases=40), nll_margins=(loose,))
    assert (few.verdict, few.cases_needed) == ("undecided", 60)
    strict = replace(NLL_MARGIN, tail_share=0.001)
    wanted = cases_to_bound(0.001, 46, alpha=0.025)
    assert cell_of(nll_table(shifts, cases=40), nll_margins=(strict,)).cases_needed == wanted > 60


def test_unobserved_cases_and_a_missing_aa_are_incomplete() -> None:
    rows = nll_table({"hc": noise(1), "aa": noise(2)})
    observed = rows.observed.copy()
    observed[1, 0, 7] = False
    cell = cell_of(replace(rows, observed=observed))
    assert (cell.verdict, cell.unobserved_ids) == ("incomplete", ("nll-007",))
    assert cell_of(nll_table({"hc": noise(1)})).verdict == "incomplete"
    alone = cell_of(nll_table({"hc": noise(1)}), aa=None)
    assert alone.verdict == "undecided" and "without an A/A launch" in alone.reason


def test_harm_survives_a_few_unobserved_cases() -> None:
    rows = nll_table({"hc": noise(1) - 0.05, "aa": noise(2)})
    observed = rows.observed.copy()
    observed[1, 0, :3] = False
    assert cell_of(replace(rows, observed=observed)).verdict == "harm shown"


def test_values_lost_by_the_candidate_count_in_its_tail() -> None:
    rows = nll_table({"hc": noise(1), "aa": noise(2)})
    lost = rows.logprobs.copy()
    lost[1, 0, np.arange(20) * 46] = np.nan
    cell = cell_of(replace(rows, logprobs=lost))
    assert cell.verdict == "harm shown"
    assert cell.summary is not None and cell.summary.nulls == 20
    assert cell.summary.tail_share == pytest.approx(20 / 3680)
    both = rows.logprobs.copy()
    both[:, 0, np.arange(20) * 46] = np.nan
    assert cell_of(replace(rows, logprobs=both)).verdict == "admitted"


def test_equal_bits_are_admitted_and_one_tiny_difference_does_not_change_that() -> None:
    zero = np.zeros(80 * 46)
    tiny = zero.copy()
    tiny[99] = 1e-6
    for shift in (zero, tiny):
        assert cell_of(nll_table({"hc": shift, "aa": zero})).verdict == "admitted"
    assert "exactly zero" in cell_of(nll_table({"hc": zero, "aa": zero})).notes[0]


def test_a_mean_has_an_interval_only_where_its_cases_can_carry_one() -> None:
    """Without a moved case the width is the test's own resolution; below 60 cases none holds."""
    zero, dust = np.zeros(80 * 46), np.full(80 * 46, 1e-6)
    for shift in (zero, dust):
        flat = cell_of(nll_table({"hc": shift, "aa": zero}))
        assert flat.verdict == "admitted" and flat.summary is not None and flat.aa is not None
        for limits in (flat.summary.interval, flat.summary.pure_interval, flat.aa.interval):
            assert limits is not None and np.isnan(limits).all()
    for cases, carried in ((59, False), (60, True)):
        shifts = {"hc": noise(1, cases=cases), "aa": noise(2, cases=cases)}
        few = cell_of(nll_table(shifts, cases=cases)).summary
        assert few is not None and bool(np.isfinite(few.interval).all()) == carried


def test_effects_on_nll() -> None:
    shifts = {
        "hc": noise(1) - 0.02, "moe": noise(2), "hc+moe": noise(3) - 0.02, "aa": noise(4),
    }  # fmt: skip
    run = run_of(nll_table(shifts), arms=("hc", "moe", "hc+moe"))
    effects = {e.name: e for e in run.effects[0].effects}
    assert run.effects[0].unit == "nats per token"
    assert run.effects[0].factors == ("hc", "moe")
    assert effects["A"].lower < 0.02 < effects["A"].upper
    assert effects["A"].p < 0.001
    assert effects["B"].lower < 0 < effects["B"].upper
    assert effects["AB"].lower < 0 < effects["AB"].upper


def test_pure_tokens_are_reported_apart() -> None:
    rows = nll_table({"hc": noise(1), "aa": noise(2)})
    assert rows.pure is not None
    pure, shifted = rows.pure.copy(), rows.logprobs.copy()
    pure[:, :, ::2] = False
    shifted[1, 0, ::2] -= 0.003  # only where a neighbour's prefill ran
    cell = cell_of(replace(rows, pure=pure, logprobs=shifted))
    assert cell.summary is not None and cell.summary.pure_estimate is not None
    assert cell.summary.pure_tokens == 1840
    assert abs(cell.summary.pure_estimate) < 0.0005
    assert cell.summary.estimate == pytest.approx(0.0015, abs=5e-4)


def test_replays_stay_inside_their_cases() -> None:
    rows = nll_table({"hc": noise(1), "aa": noise(2)})
    twice = replace(
        rows,
        logprobs=np.repeat(rows.logprobs, 2, axis=1),
        observed=np.repeat(rows.observed, 2, axis=1),
        pure=None,
    )
    once, double = cell_of(rows), cell_of(twice, replays=2)
    assert once.summary is not None and double.summary is not None
    assert double.summary.se == pytest.approx(once.summary.se)
    assert double.summary.pure_tokens is None
    assert cell_of(twice).verdict == "exploratory"


def test_the_tail_keeps_its_level_at_its_margin() -> None:
    """True excess share equal to the margin, exceeding tokens independent of their case."""
    rng = np.random.default_rng(50)
    sizes, margin, sets = np.full(80, 46.0), 0.004, 300
    passed = 0
    for seed in range(sets):
        candidate = rng.binomial(46, margin + 0.001, size=80).astype(np.float64)
        aa = rng.binomial(46, 0.001, size=80).astype(np.float64)
        found = tail_test(
            candidate, aa, sizes, margin=margin, alpha=0.025, n_resamples=1000, seed=seed
        )
        passed += found.p <= 0.025
    assert passed / sets <= 0.025 + 4 * np.sqrt(0.025 * 0.975 / sets)


def test_harm_can_pass_holm_over_many_contrasts() -> None:
    levels = tuple(range(1, 22))
    shifts = {"hc": noise(1, tokens=12) - 0.03, "aa": noise(2, tokens=12)}
    facts = nll_plan(gate_concurrency=levels, arms=("hc", "moe", "hc+moe"))
    shifts |= {name: noise(i, tokens=12) - 0.03 for i, name in enumerate(("moe", "hc+moe"))}
    rows = nll_table(shifts, tokens=12)
    tables = [replace(rows, concurrency=level) for level in levels]
    run = judge(facts, [], tables)  # 63 contrasts: 3 (tests) * 63 * 2e-4 would be above alpha
    assert {cell.verdict for cell in run.arms[0].nll_cells} == {"harm shown"}
