"""Token deltas of one arm against the control: aligned, counted, summed per case.

A delta is candidate minus control NLL in nats (positive: the candidate finds the token less
likely). A value that is null on either side is counted and never summed; one that is null
under the candidate alone counts as exceeding any tail threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evalharness.stats import Equivalence, Interval, ratio_equivalence
from evalharness.verdicts.cell_types import NllSummary, TokenExtreme
from evalharness.verdicts.inputs import BoolCube, FloatCube, NllTable
from evalharness.verdicts.nll_measured import MIN_CASES

RESAMPLES = 10_000
# A case whose mean delta is within this share of the margin counts as unmoved, and the share is
# taken off the margin: float rounding in a few cases would otherwise decide the studentized value.
RESOLUTION = 0.01
NO_INTERVAL = Interval(math.nan, math.nan)


@dataclass(frozen=True, slots=True, eq=False)
class Deltas:
    """Deltas of the observed cases: replays x tokens, with the case index of each token."""

    values: FloatCube
    lost: BoolCube
    case: NDArray[np.int64]
    position: NDArray[np.int64]
    token_ids: NDArray[np.int64]
    case_ids: tuple[str, ...]
    pure: BoolCube | None

    @property
    def usable(self) -> BoolCube:
        """Where both sides have a value."""
        return np.isfinite(self.values)

    def per_case(self, values: FloatCube | BoolCube) -> NDArray[np.float64]:
        """Return the sum over tokens and replays of each case."""
        flat = np.asarray(values, dtype=np.float64).sum(axis=0)
        summed = np.bincount(self.case, weights=flat, minlength=len(self.case_ids))
        return summed.astype(np.float64)


def observed_cases(table: NllTable, arms: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return which cases every one of `arms` observed in every replay, with a token at least."""
    rows = [table.arms.index(arm) for arm in arms]
    return np.asarray(table.observed[rows].all(axis=(0, 1)) & (table.sizes > 0))


def deltas(table: NllTable, *, control: str, candidate: str, cases: NDArray[np.bool_]) -> Deltas:
    """Return candidate minus control NLL on the given cases (a mask over case_ids)."""
    owner = np.repeat(np.arange(table.sizes.size), table.sizes)
    starts = np.cumsum(table.sizes) - table.sizes
    keep = cases[owner]
    index = np.cumsum(cases) - 1
    base = table.logprobs[table.arms.index(control)][:, keep]
    other = table.logprobs[table.arms.index(candidate)][:, keep]
    pure = None
    if table.pure is not None:
        both = table.pure[table.arms.index(control)] & table.pure[table.arms.index(candidate)]
        pure = both[:, keep]
    return Deltas(
        values=base - other,
        lost=np.isfinite(base) & ~np.isfinite(other),
        case=index[owner[keep]],
        position=(np.arange(owner.size) - starts[owner])[keep],
        token_ids=table.token_ids[keep],
        case_ids=tuple(table.case_ids[i] for i in np.flatnonzero(cases)),
        pure=pure,
    )


def exceeding(d: Deltas, tail_nats: float) -> NDArray[np.float64]:
    """Return, per case, how many tokens moved by more than `tail_nats` or lost their value."""
    moved = np.abs(np.nan_to_num(d.values, nan=0.0)) > tail_nats
    return d.per_case(moved | d.lost)


def sums_and_sizes(d: Deltas, mask: BoolCube) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return per-case sums of deltas and numbers of tokens where `mask` holds; empty cases go."""
    sums = d.per_case(np.where(mask, np.nan_to_num(d.values, nan=0.0), 0.0))
    sizes = d.per_case(mask)
    return sums[sizes > 0], sizes[sizes > 0]


def _largest(d: Deltas) -> TokenExtreme | None:
    size = np.where(d.usable, np.abs(d.values), -1.0)
    if size.size == 0 or size.max() < 0:
        return None
    row, column = (int(i) for i in np.unravel_index(int(size.argmax()), size.shape))
    return TokenExtreme(
        delta=float(d.values[row, column]),
        case_id=d.case_ids[int(d.case[column])],
        position=int(d.position[column]),
        token_id=int(d.token_ids[column]),
    )


def _carried(
    interval: Interval, sums: NDArray[np.float64], sizes: NDArray[np.float64], *, resolution: float
) -> Interval:
    """Return the interval of a mean, or none where its cases cannot carry one.

    Too few cases have no trustworthy one; where no case moved by more than the resolution, its
    whole width is that resolution and not what was seen.
    """
    moved = np.abs(sums) > resolution * sizes
    return interval if sums.size >= MIN_CASES and bool(moved.any()) else NO_INTERVAL


@dataclass(frozen=True, slots=True)
class _Pure:
    tokens: int | None
    estimate: float | None
    interval: Interval | None


def _pure(d: Deltas, mean: Equivalence, *, alpha: float, seed: int) -> _Pure:
    if d.pure is None:
        return _Pure(None, None, None)
    mask = d.pure & d.usable
    if bool((mask == d.usable).all()):
        return _Pure(int(mask.sum()), mean.estimate, mean.interval)
    sums, sizes = sums_and_sizes(d, mask)
    if sums.size < 2:
        return _Pure(int(sizes.sum()), None, None)
    # the margin decides p alone, and only the interval is kept
    apart = ratio_equivalence(
        sums, sizes, margin=1.0, n_resamples=RESAMPLES, seed=seed, alpha=alpha
    )
    interval = _carried(apart.interval, sums, sizes, resolution=0.0)
    return _Pure(int(sizes.sum()), apart.estimate, interval)


def mean_of(
    d: Deltas, *, margin_nats: float, alpha: float, seed: int
) -> tuple[Equivalence, int] | None:
    """Return the test of the token-weighted mean and its number of cases; None below two.

    Its interval is NaN where the cases cannot carry one: fewer than 60, or none that moved.
    """
    sums, sizes = sums_and_sizes(d, d.usable)
    if sums.size < 2:
        return None
    resolution = margin_nats * RESOLUTION
    test = ratio_equivalence(
        sums,
        sizes,
        margin=margin_nats,
        n_resamples=RESAMPLES,
        seed=seed,
        alpha=alpha,
        resolution=resolution,
    )
    interval = _carried(test.interval, sums, sizes, resolution=resolution)
    return replace(test, interval=interval), int(sums.size)


def summarise(
    d: Deltas, mean: Equivalence, *, tail_nats: float, alpha: float, seed: int
) -> NllSummary:
    """Return the deltas' summary around the test of their mean."""
    usable = d.usable
    sums, sizes = sums_and_sizes(d, usable)
    known, over = d.values[usable], exceeding(d, tail_nats)
    pure = _pure(d, mean, alpha=alpha, seed=seed)
    middle, high = np.quantile(known, [0.5, 0.99])
    return NllSummary(
        cases=len(d.case_ids),
        tokens=int(sizes.sum()),
        nulls=int((~usable).sum()),
        estimate=mean.estimate,
        se=mean.se,
        interval=mean.interval,
        case_weighted=float((sums / sizes).mean()),
        perplexity_ratio=float(np.exp(mean.estimate)),
        quantile_50=float(middle),
        quantile_99=float(high),
        tail_nats=tail_nats,
        tail_share=float(over.sum() / usable.size),
        tail_cases=int((over > 0).sum()),
        largest=_largest(d),
        pure_tokens=pure.tokens,
        pure_estimate=pure.estimate,
        pure_interval=pure.interval,
    )
