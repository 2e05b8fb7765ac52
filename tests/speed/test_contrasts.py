"""Claims: only where an interval over launches excludes 1, and never from fewer than planned."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evalharness.speed.contrasts import MIN_REPEATS, NOISY, Family, Pair, after_aa, compare
from evalharness.speed.figures import STEP, TOKENS_PER_S, CellFigures, without_figures
from evalharness.speed.together import arm_speed

RATIOS = (0.951, 0.948, 0.953, 0.949, 0.952, 0.947)


def pairs(ratios: tuple[float, ...], figure: str = STEP, base: float = 20.0) -> list[Pair]:
    """One pair of launches per ratio."""
    return [
        Pair(f"repeat {i}", (0, i, 100 + i), _cell(figure, base + i), _cell(figure, (base + i) * r))
        for i, r in enumerate(ratios)
    ]


def _cell(figure: str, value: float) -> CellFigures:
    return CellFigures(4, 4, 60, {figure: value}, {})


def family(planned: int = 6, comparisons: int = 1) -> Family:
    return Family(planned, comparisons, seed=7)


def test_a_shorter_step_is_faster_with_what_it_saves() -> None:
    found = compare(pairs(RATIOS), STEP, family())
    assert found.claim == "faster"
    assert found.ratio is not None and found.saved_ms is not None
    expected = math.exp(np.mean(np.log(RATIOS)))
    assert found.ratio.estimate == pytest.approx(expected)
    assert found.ratio.lower is not None and found.ratio.upper is not None
    assert found.ratio.lower < expected < found.ratio.upper < 1
    assert found.saved_ms.estimate == pytest.approx(
        np.mean([(20 + i) * (1 - r) for i, r in enumerate(RATIOS)])
    )


def test_a_higher_rate_is_faster_and_a_longer_step_is_slower() -> None:
    up = tuple(1 / r for r in RATIOS)
    assert compare(pairs(up, TOKENS_PER_S), TOKENS_PER_S, family()).claim == "faster"
    assert compare(pairs(up), STEP, family()).claim == "slower"
    assert compare(pairs(up, TOKENS_PER_S), TOKENS_PER_S, family()).saved_ms is None


def test_swapping_the_arms_inverts_the_interval() -> None:
    one = compare(pairs(RATIOS), STEP, family()).ratio
    swapped = [Pair(p.place, p.unit, p.arm, p.control) for p in pairs(RATIOS)]
    other = compare(swapped, STEP, family()).ratio
    assert one is not None and other is not None
    assert one.lower is not None and other.upper is not None
    assert one.estimate * other.estimate == pytest.approx(1)
    assert one.lower * other.upper == pytest.approx(1, abs=2e-3)  # resampled apart


def test_an_interval_that_spans_one_claims_nothing() -> None:
    found = compare(pairs((0.97, 1.02, 0.99, 1.03, 0.98, 1.01)), STEP, family())
    assert (found.claim, found.reason) == ("none", "the interval spans 1")


def test_repeats_inside_one_launch_are_one_repeat() -> None:
    shared = [Pair(p.place, (0, 1, 2), p.control, p.arm) for p in pairs(RATIOS)]
    found = compare(shared, STEP, family())
    assert (found.claim, found.repeats) == ("none", 1)
    assert "1 launch of each arm (6 repeats share them)" in found.reason


@pytest.mark.parametrize("planned", [5, 7])
def test_another_number_of_repeats_than_planned_claims_nothing(planned: int) -> None:
    found = compare(pairs(RATIOS), STEP, family(planned))
    assert found.claim == "none"
    assert f"the plan declares {planned}" in found.reason


def test_too_few_launches_claim_nothing() -> None:
    few = RATIOS[: MIN_REPEATS - 1]
    found = compare(pairs(few), STEP, family(len(few)))
    assert (found.claim, f"needs {MIN_REPEATS}" in found.reason) == ("none", True)
    assert compare(pairs(RATIOS[:1]), STEP, family(1)).ratio is not None


def test_a_repeat_that_lacks_the_figure_is_not_left_out_in_silence() -> None:
    found = pairs(RATIOS)
    found[2] = Pair("repeat 2", (0, 2, 102), found[2].control, without_figures("not streamed"))
    contrast = compare(found, STEP, family())
    assert contrast.claim == "none"
    assert contrast.reason == "repeat 2, arm: not streamed"
    assert compare(found[2:3], STEP, family()).ratio is None


def test_a_client_that_was_the_limit_measured_itself() -> None:
    found = pairs(RATIOS)
    found[1] = Pair(*(getattr(found[1], n) for n in ("place", "unit", "control", "arm")), "slow")
    contrast = compare(found, STEP, family())
    assert (contrast.claim, contrast.reason) == ("none", "repeat 1: slow")
    assert contrast.ratio is not None and contrast.ratio.upper is not None


def test_where_equal_launches_differ_nobody_is_faster() -> None:
    arm = {STEP: compare(pairs(RATIOS), STEP, family())}
    quiet = {STEP: compare(pairs((0.99, 1.01, 0.98, 1.0, 1.02, 1.0)), STEP, family())}
    assert after_aa(arm, quiet)[STEP].claim == "faster"
    kept = after_aa(arm, arm)[STEP]
    assert (kept.claim, kept.reason) == ("none", NOISY)


def test_more_comparisons_widen_the_interval() -> None:
    widths = []
    for comparisons in (1, 4, 12):
        ratio = compare(pairs(RATIOS), STEP, family(comparisons=comparisons)).ratio
        assert ratio is not None and ratio.lower is not None and ratio.upper is not None
        widths.append(ratio.upper - ratio.lower)
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


@pytest.mark.parametrize(
    ("ratio", "verdict", "sentence"),
    [
        (1.05, "admitted", "faster by 5.0% at C4 and admitted"),
        (1.05, "undecided", "faster by 5.0% at C4 but undecided"),
        (1.05, "harm shown", "faster by 5.0% at C4 but harm shown"),
        (0.95, "admitted", "slower by 5.0% at C4 but admitted"),
        (0.95, "harm shown", "slower by 5.0% at C4 and harm shown"),
        (1.0, "admitted", "no difference in speed shown; admitted"),
    ],
)
def test_speed_and_quality_make_one_sentence(ratio: float, verdict: str, sentence: str) -> None:
    jitter = (1.001, 0.999, 1.002, 0.998, 1.0005, 0.9995)
    found = compare(pairs(tuple(ratio * j for j in jitter), TOKENS_PER_S), TOKENS_PER_S, family())
    assert arm_speed({4: found}, verdict).sentence == sentence


def test_levels_that_differ_are_named() -> None:
    fast = compare(pairs(tuple(1 / r for r in RATIOS), TOKENS_PER_S), TOKENS_PER_S, family())
    slow = compare(pairs(RATIOS, TOKENS_PER_S), TOKENS_PER_S, family())
    same = compare(
        pairs((0.97, 1.02, 0.99, 1.03, 0.98, 1.01), TOKENS_PER_S), TOKENS_PER_S, family()
    )
    found = arm_speed({1: slow, 4: same, 16: fast}, "admitted")
    assert found.direction == "mixed"
    assert found.sentence == (
        "faster by 5.3% at C16, slower by 5.0% at C1 but admitted; no difference shown at C4"
    )
