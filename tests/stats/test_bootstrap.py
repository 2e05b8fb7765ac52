"""Coverage of the cluster bootstrap by simulation: seeded, and bounded in time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import evalharness.stats as stats

DATA_SETS = 300
RESAMPLES = 1000


def heavy(rng: np.random.Generator, g: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Heavy symmetric token deltas with an effect of the case; true mean 0."""
    sizes = rng.integers(20, 70, size=g)
    effect = rng.normal(0, 0.3, size=g)
    sums = np.array(
        [float(rng.standard_t(2.5, m).sum() + m * e) for m, e in zip(sizes, effect, strict=True)]
    )
    return sums, sizes.astype(np.float64)


@pytest.mark.parametrize("method", ["studentized", "bca", "percentile"])
def test_intervals_cover(method: str) -> None:
    rng = np.random.default_rng(20)
    covered = 0
    for seed in range(DATA_SETS):
        found = stats.cluster_bootstrap(*heavy(rng, 80), RESAMPLES, seed, 0.95, method)  # type: ignore[arg-type]
        covered += found.lower <= 0 <= found.upper
    assert 0.91 <= covered / DATA_SETS <= 0.98


def test_tokens_taken_as_independent_fail_to_cover() -> None:
    rng = np.random.default_rng(21)
    covered = 0
    for _ in range(DATA_SETS):
        sizes = rng.integers(20, 70, size=80)
        tokens = np.concatenate([rng.standard_t(2.5, m) + rng.normal(0, 0.8) for m in sizes])
        half = 1.96 * tokens.std(ddof=1) / np.sqrt(tokens.size)
        covered += abs(tokens.mean()) <= half
    assert covered / DATA_SETS < 0.85


def test_equivalence_keeps_its_level_at_the_margin() -> None:
    rng = np.random.default_rng(22)
    passed = 0
    for seed in range(DATA_SETS):
        sums, sizes = heavy(rng, 80)
        at_margin = stats.ratio_equivalence(
            sums + 0.2 * sizes, sizes, margin=0.2, n_resamples=RESAMPLES, seed=seed, alpha=0.05
        )
        passed += at_margin.p <= 0.05
    # 4 standard errors above nominal; an anti-conservative test would sit well above
    assert passed / DATA_SETS <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / DATA_SETS)


def test_equivalence_p_and_interval_agree() -> None:
    rng = np.random.default_rng(23)
    decided = set()
    for seed in range(40):
        sums, sizes = heavy(rng, 80)
        found = stats.ratio_equivalence(
            sums, sizes, margin=0.15, n_resamples=4000, seed=seed, alpha=0.025
        )
        inside = found.interval.lower > -0.15 and found.interval.upper < 0.15
        if abs(found.p - 0.025) > 0.002:
            assert (found.p <= 0.025) == inside
        decided.add(inside)
    assert decided == {True, False}


def test_sparse_differences_get_a_bound_and_not_an_empty_interval() -> None:
    sizes = np.full(80, 46.0)
    sums = np.zeros(80)
    sums[3] = 2.0  # one token of one case moved by 2 nats
    one = stats.ratio_equivalence(sums, sizes, margin=0.002, n_resamples=2000, seed=1)
    assert one.method == "sparse"
    # up to 6.8% of cases may carry such a token: 0.068 * 2 / 46
    assert one.interval.upper == pytest.approx(0.0677 * 2 / 46, rel=0.01)
    assert one.p > 0.025
    # most resamples miss that case, or have it alone: no studentized limit exists above
    assert stats.cluster_bootstrap(sums, sizes, 2000, 1).upper == np.inf
    tiny = stats.ratio_equivalence(sums * 1e-6, sizes, margin=0.002, n_resamples=2000, seed=1)
    assert tiny.p <= 0.025
    nothing = stats.ratio_equivalence(sums * 0, sizes, margin=0.002, n_resamples=2000, seed=1)
    assert (nothing.p, nothing.interval, nothing.p_shift) == (0.0, (0.0, 0.0), 1.0)


def test_rounding_dust_beside_one_difference_is_not_studentized() -> None:
    sums = np.zeros(60)
    sums[3], sums[10:16] = 4e-4, 1e-8 * np.array([1, -2, 1, 3, -1, 2])
    sizes = np.full(60, 16.0)
    options = {"margin": 0.002, "n_resamples": 10_000, "seed": 1}
    without = stats.ratio_equivalence(sums, sizes, **options)
    assert without.method == "studentized" and without.p > 0.025  # each case moved < margin / 80
    found = stats.ratio_equivalence(sums, sizes, resolution=2e-5, **options)
    assert found.p <= 0.001
    assert found.estimate == without.estimate and found.se == without.se
    assert -0.002 < found.interval.lower <= -2e-5 and 2e-5 <= found.interval.upper < 0.002


def test_a_resolution_is_taken_off_the_margin() -> None:
    """Every case a hair under the resolution: the mean is as large, and must not be admitted."""
    sizes = np.full(80, 10.0)
    at_margin = sizes * 0.002
    for resolution in (0.0, 0.0005, 0.001):
        options = {"margin": 0.002, "n_resamples": 500, "seed": 1, "resolution": resolution}
        assert stats.ratio_equivalence(at_margin, sizes, **options).p > 0.9
    with pytest.raises(ValueError, match="resolution"):
        stats.ratio_equivalence(at_margin, sizes, **{**options, "resolution": 0.002})


def test_miller_clustered_error_agrees_but_for_the_small_sample_factor() -> None:
    rng = np.random.default_rng(24)
    tokens = [rng.normal(rng.normal(), 1, size=40) for _ in range(50)]
    flat = np.concatenate(tokens)
    centred = [t - flat.mean() for t in tokens]
    variance = sum(float(t.sum()) ** 2 for t in centred) / flat.size**2
    found = stats.cluster_ratio([t.sum() for t in tokens], [t.size for t in tokens])
    assert found.se == pytest.approx(np.sqrt(variance * 50 / 49))


def test_the_same_seed_gives_the_same_resamples_whatever_the_columns() -> None:
    y = np.random.default_rng(25).integers(0, 2, size=(80, 16))
    alone = stats.bootstrap_sums(y[:, 3:4], 500, 7)
    together = stats.bootstrap_sums(y, 500, 7)
    assert (alone[:, 0] == together[:, 3]).all()
    counts = np.concatenate(list(stats.resample_counts(80, 500, 7)))
    assert (counts.sum(axis=1) == 80).all()
    assert (counts @ y == together).all()
    assert not (stats.bootstrap_sums(y, 500, 8) == together).all()


def test_percentile_interval_is_empty_without_discordance() -> None:
    """Why it never gates: 16 of 16 equal cases would admit every margin."""
    found = stats.cluster_bootstrap([0] * 16, [1] * 16, 1000, 1, 0.95, "percentile")
    assert (found.lower, found.upper) == (0.0, 0.0)
    assert stats.tango_interval(16, 0, 0, 0).lower == pytest.approx(-0.194, abs=5e-4)
