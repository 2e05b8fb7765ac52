"""Replays, levels and new cases: more observations are not more cases, and looks cost."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri

import evalharness.stats as stats


def levels(
    rng: np.random.Generator, *, correlation: float, shape: tuple[int, int]
) -> NDArray[np.int64]:
    """Wins 2.5%, losses 7.5% (5 points worse); with some chance a case's levels all agree."""

    def draw(size: tuple[int, int]) -> NDArray[np.int64]:
        return rng.choice([-1, 0, 1], p=[0.075, 0.9, 0.025], size=size)

    together = rng.random((shape[0], 1)) < correlation
    return np.where(together, draw((shape[0], 1)), draw(shape))


def admitted(correlation: float, *, naive: bool, data_sets: int = 1000) -> float:
    rng = np.random.default_rng(31)
    hits = 0
    for _ in range(data_sets):
        d = levels(rng, correlation=correlation, shape=(64, 4))
        if naive:
            z = float(stats.score_z((d > 0).sum(), (d < 0).sum(), n=d.size, delta=-0.05))
            hits += z >= -float(ndtri(0.025))
        else:
            hits += stats.pooled_noninferiority(d, 0.05).p <= 0.025
    return hits / data_sets


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_pooling_over_levels_keeps_its_level(correlation: float) -> None:
    # .0315 is the worst known of this approximation; 3 standard errors of the simulation
    assert admitted(correlation, naive=False) <= 0.0315 + 3 * np.sqrt(0.03 / 1000)


def test_levels_counted_as_cases_do_not() -> None:
    assert admitted(0.9, naive=True) > 0.10


def test_design_effect_limits() -> None:
    rng = np.random.default_rng(32)
    once = rng.choice([-1, 0, 1], p=[0.1, 0.8, 0.1], size=(200, 1))
    assert stats.design_effect(np.repeat(once, 4, axis=1)) == pytest.approx(4, abs=0.05)
    assert stats.design_effect(np.zeros((50, 4))) == 4.0
    same = stats.pooled_noninferiority(np.zeros((64, 4)), 0.06)
    assert same.n == 64 and same.p == stats.noninferiority(0, 0, 64, 0.06).p_score


def answers(rng: np.random.Generator, p: NDArray[np.float64]) -> NDArray[np.int64]:
    return (rng.random((p.size, 2)) < p[:, None]).astype(np.int64)


def test_excess_discordance_is_unbiased_and_sees_hidden_changes() -> None:
    rng = np.random.default_rng(33)
    p = rng.beta(2, 1, size=400)
    shift = np.zeros(400)
    shift[:20], shift[20:40] = 0.4, -0.4
    q = np.clip(p + shift, 0, 1)
    truth = float(((p - q) ** 2).mean())
    found = [stats.excess_discordance(answers(rng, p), answers(rng, q)).excess for _ in range(400)]
    assert np.mean(found) == pytest.approx(truth, abs=4 * float(np.std(found)) / 20)
    null = [stats.excess_discordance(answers(rng, p), answers(rng, p)) for _ in range(400)]
    assert np.mean([n.excess for n in null]) == pytest.approx(
        0, abs=4 * float(np.std([n.excess for n in null])) / 20
    )
    assert np.mean([n.p <= 0.05 for n in null]) <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 400)


def test_excess_discordance_by_hand() -> None:
    control = [[1, 1], [0, 0], [1, 0], [1, 1]]
    candidate = [[0, 0], [0, 0], [0, 1], [1, 1]]
    found = stats.excess_discordance(control, candidate)
    assert found.cross == (1 + 0 + 0.5 + 0) / 4
    assert (found.within_control, found.within_candidate) == (0.25, 0.25)
    assert (found.split_cases, found.same_arm_cases) == (2, 1)
    assert found.p == pytest.approx(1 - (2 / 3) ** 2)


def paths(rng: np.random.Generator, *, p_win: float, p_loss: float, n: int) -> NDArray[np.int64]:
    return rng.choice([-1, 0, 1], p=[p_loss, 1 - p_win - p_loss, p_win], size=n)


@pytest.mark.parametrize("psi", [0.05, 0.10, 0.30])
def test_the_e_process_is_valid_at_any_stop(psi: float) -> None:
    rng, margin = np.random.default_rng(34), 0.05
    rejected = 0
    for _ in range(600):
        d = paths(rng, p_win=(psi - margin) / 2, p_loss=(psi + margin) / 2, n=1200)
        rejected += stats.noninferiority_e_process(d, margin).rejected_at is not None
    assert rejected / 600 <= 0.025


def test_looking_again_and_again_with_the_score_test_is_not() -> None:
    rng, margin = np.random.default_rng(35), 0.05
    looks = np.arange(64, 4417, 64)
    hits = 0
    for _ in range(600):
        d = paths(rng, p_win=0.025, p_loss=0.075, n=4416)
        wins, losses = np.cumsum(d > 0)[looks - 1], np.cumsum(d < 0)[looks - 1]
        z = [
            float(stats.score_z(w, lost, n=float(n), delta=-margin))
            for w, lost, n in zip(wins, losses, looks, strict=True)
        ]
        hits += max(z) >= -float(ndtri(0.025))
    assert hits / 600 > 0.10


def test_the_e_process_admits_an_equal_arm_in_time() -> None:
    rng = np.random.default_rng(36)
    stops = [
        stats.noninferiority_e_process(paths(rng, p_win=0.025, p_loss=0.025, n=336), 0.05)
        for _ in range(300)
    ]
    assert np.mean([s.rejected_at is not None for s in stops]) >= 0.72


def test_e_values_of_the_worked_example() -> None:
    d = [-1] * 4 + [1] + [0] * 59
    for margin, expected in ((0.05, 0.52), (0.10, 1.6)):
        found = stats.noninferiority_e_process(d, margin)
        assert found.e_value == pytest.approx(expected, abs=0.05)
        assert found.rejected_at is None and found.threshold == 40
    reached = stats.noninferiority_e_process([0] * 400, 0.05)
    assert reached.rejected_at is not None
    assert (
        reached.e_values[reached.rejected_at - 1] >= 40 > reached.e_values[reached.rejected_at - 2]
    )
    assert reached.p <= 0.025


def test_confidence_sequence_holds_over_time() -> None:
    rng, missed = np.random.default_rng(37), 0
    for _ in range(200):
        hits = np.cumsum(rng.random(400) < 0.3)
        missed += any(
            not (lower <= 0.3 <= upper)
            for lower, upper in (
                stats.bernoulli_confidence_sequence(int(hits[n - 1]), n) for n in range(40, 401, 40)
            )
        )
    assert missed / 200 <= 0.05
