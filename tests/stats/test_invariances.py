"""What must hold for every table: symmetries, monotonicity, test-interval duality."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evalharness.stats as stats


@st.composite
def paired(draw: st.DrawFn, most: int = 60) -> tuple[int, int, int, int]:
    """a, b, c, d of at least one case."""
    cells = [draw(st.integers(0, most)) for _ in range(4)]
    return (cells[0] + (sum(cells) == 0), *cells[1:])  # type: ignore[return-value]


# a busy machine is no failure of a property
steady = settings(deadline=None)
margins = st.floats(0.005, 0.5)
confidences = st.floats(0.5, 0.999)


@steady
@given(paired(), confidences)
def test_swapping_the_arms_mirrors_the_intervals(
    table: tuple[int, int, int, int], confidence: float
) -> None:
    a, b, c, d = table
    for interval in (stats.tango_interval, stats.newcombe_interval):
        one, other = interval(a, b, c, d, confidence), interval(a, c, b, d, confidence)
        assert one.lower == pytest.approx(-other.upper, abs=1e-9)
        assert one.upper == pytest.approx(-other.lower, abs=1e-9)
        assert -1 <= one.lower <= (b - c) / (a + b + c + d) <= one.upper <= 1


@steady
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 500))
def test_concordant_cases_do_not_move_the_sign_test(b: int, c: int, more: int) -> None:
    assert stats.mcnemar(0, b, c, 0) == stats.mcnemar(more, b, c, more // 2)
    test = stats.sign_test(c, b)
    assert 0 < test.p_one_sided <= 1 and 0 < test.p_two_sided <= 1
    assert test.p_mid_one_sided <= test.p_one_sided
    assert stats.sign_test(b, c).p_two_sided == pytest.approx(test.p_two_sided)


@steady
@given(paired(30), margins, st.floats(0.005, 0.2))
def test_the_limit_and_the_test_agree(
    table: tuple[int, int, int, int], margin: float, alpha: float
) -> None:
    _, b, c, _ = table
    n = sum(table)
    gate = stats.noninferiority(b, c, n, margin, alpha)
    if abs(gate.lower + margin) > 1e-9:
        assert (gate.p_score <= alpha) == (gate.lower > -margin)
    assert gate.lower == pytest.approx(stats.tango_interval(*table, 1 - 2 * alpha).lower, abs=1e-9)


@settings(steady, max_examples=40)
@given(st.integers(0, 20), st.integers(0, 20), st.integers(45, 90), st.floats(0.02, 0.2))
def test_the_gate_gets_harder_with_losses_and_smaller_margins(
    wins: int, losses: int, n: int, margin: float
) -> None:
    here = stats.noninferiority(wins, losses, n, margin)
    assert here.p_exact is not None
    assert here.p == max(here.p_score, here.p_exact)
    assert stats.noninferiority(wins, losses + 1, n, margin).p >= here.p - 1e-9
    assert stats.noninferiority(wins, losses, n, margin / 2).p_score >= here.p_score - 1e-12
    assert (here.verdict == "admitted") == (here.p <= 0.025)


@settings(steady, max_examples=25)
@given(st.integers(0, 6), st.integers(0, 6), st.integers(30, 90))
def test_the_smallest_margin_is_where_the_gate_opens(wins: int, losses: int, n: int) -> None:
    margin = stats.smallest_admitted_margin(wins, losses, n)
    assert stats.noninferiority(wins, losses, n, margin).verdict == "admitted"
    if margin > 1e-3:  # below that, wins alone admit any margin
        assert stats.noninferiority(wins, losses, n, margin - 2e-4).verdict != "admitted"


@steady
@given(st.integers(1, 5000), st.floats(0.6, 0.999))
def test_zero_discordance_is_finite_and_closed(n: int, confidence: float) -> None:
    lower, upper = stats.tango_interval(n // 2, 0, 0, n - n // 2, confidence)
    z = stats.tango_interval(1, 0, 0, 0, confidence).lower
    z2 = -z / (1 + z)  # from z^2/(1 + z^2) at n = 1
    assert lower == pytest.approx(-z2 / (n + z2), abs=1e-9)
    assert upper == pytest.approx(-lower, abs=1e-12)
    assert stats.sign_test(0, 0).p_one_sided == 1.0
    assert stats.newcombe_interval(n, 0, 0, 0).lower < 0


def test_all_losses_and_all_wins_are_finite() -> None:
    for wins, losses in ((64, 0), (0, 64), (32, 32)):
        gate = stats.noninferiority(wins, losses, 64, 0.1)
        assert all(math.isfinite(v) for v in (gate.z, gate.p_score, gate.p, gate.lower))
    assert stats.noninferiority(0, 64, 64, 0.1).verdict == "harm shown"
    assert stats.smallest_admitted_margin(0, 64, 64) == 1.0
    assert stats.tango_interval(0, 0, 64, 0).lower == pytest.approx(-1.0)


@steady
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_between_raw_and_bonferroni(p_values: list[float]) -> None:
    adjusted = stats.holm(p_values)
    for raw, new in zip(p_values, adjusted, strict=True):
        assert raw <= new <= min(1.0, raw * len(p_values)) + 1e-12
    order = np.argsort(p_values, kind="stable")
    assert all(np.diff(np.array(adjusted)[order]) >= 0)
    assert stats.holm(p_values[::-1]) == adjusted[::-1]
    sequence = stats.fixed_sequence(p_values)
    assert sequence[-1] == max(p_values) and all(np.diff(sequence) >= 0)


@steady
@given(
    st.lists(st.tuples(st.floats(-50, 50), st.integers(1, 90)), min_size=2, max_size=30),
    st.randoms(use_true_random=False),
)
def test_a_ratio_does_not_know_the_order_of_its_cases(
    rows: list[tuple[float, int]], random: object
) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one = stats.cluster_ratio(*zip(*rows, strict=True))
    other = stats.cluster_ratio(*zip(*shuffled, strict=True))
    assert other.estimate == pytest.approx(one.estimate, abs=1e-9)
    assert other.se == pytest.approx(one.se, abs=1e-9)


@steady
@given(st.integers(2, 40), st.integers(0, 10_000))
def test_null_factor_relabelling_arms_within_a_case_mirrors_the_effects(n: int, seed: int) -> None:
    y = np.random.default_rng(seed).integers(0, 2, size=(n, 4))
    levels = [(0, 0), (1, 0), (0, 1), (1, 1)]
    effects = stats.factorial_effects(y, levels, n_resamples=50)
    swapped = stats.factorial_effects(y[:, [1, 0, 3, 2]], levels, n_resamples=50)
    assert swapped["A"].estimate == pytest.approx(-effects["A"].estimate)
    assert swapped["B"].estimate == pytest.approx(effects["B"].estimate)
    assert swapped["AB"].estimate == pytest.approx(-effects["AB"].estimate)
    assert swapped["A"].p == pytest.approx(effects["A"].p)


def test_levels_may_be_labels_or_mappings() -> None:
    y = np.random.default_rng(3).integers(0, 2, size=(30, 4))
    plain = stats.factorial_effects(y, [(0, 0), (1, 0), (0, 1), (1, 1)], n_resamples=50)
    labels = [("off", "a"), ("on", "a"), ("off", "b"), ("on", "b")]
    assert stats.factorial_effects(y, labels, n_resamples=50) == plain
    named = [{"hc": one, "moe": other} for one, other in labels]
    found = stats.factorial_effects(y, named, n_resamples=50)
    assert [e.name for e in found] == ["hc", "moe", "hc:moe"]
    assert found["hc:moe"].estimate == plain["AB"].estimate == plain[2].estimate
    assert len(found) == 3
    with pytest.raises(KeyError, match="there are"):
        found["nothing"]
    with pytest.raises(ValueError, match="two levels"):
        stats.factorial_effects(y, [("x",), ("y",), ("z",), ("x",)])


@pytest.mark.parametrize("n", [2, 3, 5])
def test_effects_of_a_handful_of_cases_are_finite_and_wide(n: int) -> None:
    y = np.array([[1, 0, 0, 1], [0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1]])[:n]
    effects = stats.factorial_effects(y, [(0, 0), (1, 0), (0, 1), (1, 1)], seed=-3)
    for effect in effects:
        assert math.isfinite(effect.lower) and math.isfinite(effect.upper)
        assert effect.upper - effect.lower > 0.5
    concordant = stats.factorial_effects(np.ones((64, 4)), [(0, 0), (1, 0), (0, 1), (1, 1)])
    # no case differed: a main effect may still be some points, an interaction twice that
    assert 0.04 < concordant["A"].upper < 0.10
    assert concordant["AB"].upper == pytest.approx(2 * concordant["A"].upper)


def test_harm_is_named_only_where_the_margin_is_not_held() -> None:
    assert stats.noninferiority(0, 8, 64, 0.05).verdict == "harm shown"
    # a real loss inside a wide margin is admitted, and the sign test still sees it
    inside = stats.noninferiority(0, 8, 400, 0.10)
    assert inside.verdict == "admitted"
    assert stats.sign_test(8, 0).p_one_sided <= 0.025


BAD = [
    ("negative", lambda: stats.noninferiority(-1, 0, 10, 0.1)),
    ("more than n", lambda: stats.noninferiority(6, 6, 10, 0.1)),
    ("points, not a fraction", lambda: stats.noninferiority(0, 0, 10, 5)),
    ("no margin", lambda: stats.noninferiority(0, 0, 10, 0.0)),
    ("fractional counts", lambda: stats.sign_test(1.5, 0)),  # type: ignore[arg-type]
    ("empty table", lambda: stats.tango_interval(0, 0, 0, 0)),
    ("NaN", lambda: stats.cluster_ratio([1.0, math.nan], [1, 1])),
    ("empty cluster", lambda: stats.cluster_ratio([1.0, 0.0], [1, 0])),
    ("one cluster", lambda: stats.cluster_ratio([1.0], [1])),
    ("not 0/1", lambda: stats.cochran_q([[0, 2], [1, 1]])),
    ("probability", lambda: stats.holm([0.1, 1.2])),
    ("k > n", lambda: stats.wilson_interval(3, 2)),
    ("partial factorial", lambda: stats.factorial_effects([[0, 1], [1, 1]], [(0, 0), (1, 1)])),
    ("three values", lambda: stats.pooled_noninferiority([[2, 0], [0, 0]], 0.1)),
    ("unreachable", lambda: stats.required_cases(0.02, 0.05, difference=-0.02)),
    ("unpaired", lambda: stats.tost_paired([1, 2, 3], [1, 2], -1, 1)),
    ("method", lambda: stats.cluster_bootstrap([1, 2], [1, 1], 9, 1, 0.9, "basic")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("call", [c for _, c in BAD], ids=[name for name, _ in BAD])
def test_bad_input_is_refused_with_what_was_found(call: object) -> None:
    with pytest.raises(ValueError, match=r"expected|found|exceed|no n"):
        call()  # type: ignore[operator]
