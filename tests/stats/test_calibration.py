"""The gate keeps its level by enumeration; Wald and the percentile bootstrap must not pass."""

from __future__ import annotations

import numpy as np
import pytest

from evalharness.stats import admission_probability, noninferiority, score_z, sign_test
from tests.stats.enumeration import (
    Gate,
    check_calibrated,
    percentile_gate,
    product_gate,
    score_gate,
    tables,
    type_one,
    wald_gate,
)

MARGINS = (0.02, 0.05, 0.10)
ALPHAS = (0.025, 0.05)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("n", [64, 80, 400])
def test_gate_keeps_its_level(n: int, margin: float, alpha: float) -> None:
    check_calibrated(product_gate, n=n, margin=margin, alpha=alpha, slack=1e-4)


@pytest.mark.parametrize("n", [64, 80, 400])
def test_the_gate_is_one_threshold_along_the_score(n: int) -> None:
    wins, losses = tables(n)
    region = product_gate(wins, losses, n, 0.05, 0.025)
    z = score_z(wins, losses, n=n, delta=-0.05)
    near = np.argsort(np.abs(z - z[region].min()))[:24]
    drawn = np.random.default_rng(5).choice(wins.size, 8, replace=False)
    for table in (*near, *drawn):
        one = noninferiority(int(wins[table]), int(losses[table]), n, 0.05)
        assert (one.verdict == "admitted") == bool(region[table])


@pytest.mark.parametrize(("alpha", "most"), [(0.025, 0.028), (0.05, 0.055)])
@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("n", [64, 80, 400])
def test_score_test_alone_is_near_its_level(
    n: int, margin: float, alpha: float, most: float
) -> None:
    region = score_gate(*tables(n), n, margin, alpha)
    found = type_one(region, n, margin, np.linspace(margin, 0.30, 61))
    assert found <= most


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize(
    ("gate", "n"),
    [(wald_gate, 64), (wald_gate, 80), (wald_gate, 400), (percentile_gate, 64),
     (percentile_gate, 80)],
)  # fmt: skip
def test_wald_and_percentile_bootstrap_fail_the_same_check(
    gate: Gate, n: int, margin: float
) -> None:
    with pytest.raises(AssertionError, match="type-I"):
        check_calibrated(gate, n=n, margin=margin, alpha=0.025, slack=1e-4)


@pytest.mark.parametrize("gate", [wald_gate, percentile_gate])
def test_the_known_failure_of_wald_and_bootstrap_is_reproduced(gate: Gate) -> None:
    """.98^64: the chance that an arm truly worse by 2 points shows no discordance."""
    region = gate(*tables(64), 64, 0.02, 0.025)
    found = type_one(region, 64, 0.02, np.linspace(0.02, 0.30, 60))
    assert found == pytest.approx(0.98**64, abs=5e-4)


def test_not_significant_is_no_admission() -> None:
    """One-sided sign test p > .05 as a gate admits a 10-point loss 44 times in 100."""
    wins, losses = tables(64)
    region = np.array(
        [
            sign_test(int(lost), int(won)).p_one_sided > 0.05
            for won, lost in zip(wins, losses, strict=True)
        ]
    )
    for margin, psi, expected in ((0.02, 0.05, 0.97), (0.05, 0.10, 0.81), (0.10, 0.15, 0.44)):
        assert type_one(region, 64, margin, np.array([psi])) == pytest.approx(expected, abs=0.006)


def test_power_figures() -> None:
    score = admission_probability(64, 0.10, p_win=0.025, p_loss=0.025, exact=False)
    gate = admission_probability(64, 0.10, p_win=0.025, p_loss=0.025)
    assert (round(score, 3), round(gate, 3)) == (0.765, 0.762)
    worst = admission_probability(80, 0.10, p_win=0.0, p_loss=0.10)
    assert 0 < worst <= 0.025


@pytest.mark.parametrize(("n", "margin", "alpha"), [(1319, 0.02, 0.025), (4441, 0.01, 0.025)])
def test_large_suites_by_simulation(n: int, margin: float, alpha: float) -> None:
    """Above 400 cases the score test stands alone: 200,000 draws at the boundary."""
    draws, psi = 200_000, 0.06
    rates = [(psi - margin) / 2, (psi + margin) / 2, 1 - psi]
    counts = np.random.default_rng(11).multinomial(n, rates, size=draws)
    z = score_z(counts[:, 0], counts[:, 1], n=n, delta=-margin)
    found = float((z >= 1.959963984540054).mean())
    assert found <= alpha + 4 * np.sqrt(alpha * (1 - alpha) / draws)
    assert noninferiority(0, 0, n, margin).p_exact is None
