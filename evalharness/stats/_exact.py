"""The exact unconditional p-value of a paired difference, and the trinomial behind it.

Wins, losses and ties of n cases are trinomial. At the margin, p_loss = p_win + margin, and
p_win is a nuisance: the exact p is the largest tail over it. Hsueh, Liu & Chen 2001,
Biometrics 57:478, with the score statistic as the order of the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri, xlogy

from evalharness.stats._checks import FloatArray, require_counts, require_open_unit, require_table
from evalharness.stats._score import score_z

EXACT_LIMIT = 400
_COARSE = 96
_ZOOMS = 3
_ZOOM_POINTS = 9
_BLOCK = 9
_BERNSTEIN = 30.0  # exp(-30) = 1e-13


@dataclass(frozen=True, slots=True, eq=False)
class _Tables:
    """Every table of n cases: wins, losses, ties per table (int32 vectors)."""

    wins: NDArray[np.int32]
    losses: NDArray[np.int32]
    ties: NDArray[np.int32]


@lru_cache(maxsize=8)
def _all_tables(n: int) -> _Tables:
    wins, losses = np.nonzero(np.add.outer(np.arange(n + 1), np.arange(n + 1)) <= n)
    ties = n - wins - losses
    return _Tables(wins.astype(np.int32), losses.astype(np.int32), ties.astype(np.int32))


@lru_cache(maxsize=32)
def _table_scores(n: int, margin: float) -> FloatArray:
    tables = _all_tables(n)
    return score_z(tables.wins, tables.losses, n=n, delta=-margin)


def _poisson(mean: FloatArray, n: int) -> FloatArray:
    """Poisson probabilities 0..n of each mean: a matrix of means x (n + 1)."""
    k = np.arange(n + 1, dtype=np.float64)
    log_p = xlogy(k[None, :], mean[:, None]) - mean[:, None] - gammaln(k + 1)[None, :]
    return np.asarray(np.exp(log_p))


def table_probabilities(
    tables: _Tables, *, n: int, p_win: FloatArray, p_loss: FloatArray
) -> FloatArray:
    """Return P(table) as a matrix of nuisance points x tables.

    Three Poisson counts conditioned on their sum are trinomial: two multiplications a table
    instead of an exponential.
    """
    p_tie = np.maximum(1.0 - p_win - p_loss, 0.0)
    scale = np.exp(n - n * np.log(n) + gammaln(n + 1))
    win, loss, tie = (_poisson(n * p, n) for p in (p_win, p_loss, p_tie))
    out = np.take(win, tables.wins, axis=1)
    out *= np.take(loss, tables.losses, axis=1)
    out *= np.take(tie, tables.ties, axis=1)
    out *= scale
    return out


def _window(low: float, high: float, n: int) -> tuple[int, int]:
    """Counts outside these bounds have probability below 2e-13 for every rate in low..high.

    Bernstein's inequality, taken at the larger variance of the two rates.
    """
    variance = n * max(low * (1 - low), high * (1 - high), 0.25 * (low <= 0.5 <= high))
    reach = _BERNSTEIN / 3 + np.sqrt(_BERNSTEIN**2 / 9 + 2 * variance * _BERNSTEIN)
    return int(max(np.floor(n * low - reach), 0)), int(min(np.ceil(n * high + reach), n))


def _near(region: _Tables, *, n: int, margin: float, p_win: FloatArray) -> _Tables:
    """The tables of the region that these nuisance values can produce at all."""
    low, high = float(p_win.min()), float(p_win.max())
    least_w, most_w = _window(low, high, n)
    least_l, most_l = _window(low + margin, high + margin, n)
    kept = (region.wins >= least_w) & (region.wins <= most_w)
    kept &= (region.losses >= least_l) & (region.losses <= most_l)
    return _Tables(region.wins[kept], region.losses[kept], region.ties[kept])


def _tails(region: _Tables, *, n: int, margin: float, p_win: FloatArray) -> FloatArray:
    """P(region) at each nuisance value (ascending), a few values at a time.

    Neighbouring values share the few tables that they can produce: most of the region is
    left out, and what is lost is below 1e-12.
    """
    sums = []
    for i in range(0, p_win.size, _BLOCK):
        rates = p_win[i : i + _BLOCK]
        near = _near(region, n=n, margin=margin, p_win=rates)
        sums.append(table_probabilities(near, n=n, p_win=rates, p_loss=rates + margin).sum(axis=1))
    return np.concatenate(sums)


def _largest_tail(region: _Tables, *, n: int, margin: float) -> float:
    top = (1.0 - margin) / 2
    # denser towards zero, where the tails of low discordance turn fastest
    grid = top * np.linspace(0.0, 1.0, _COARSE) ** 2
    tails = _tails(region, n=n, margin=margin, p_win=grid)
    best = float(tails.max())
    for start in np.argsort(tails)[-2:]:
        low = grid[max(start - 1, 0)]
        high = grid[min(start + 1, _COARSE - 1)]
        for _ in range(_ZOOMS):
            points = np.linspace(low, high, _ZOOM_POINTS)
            zoomed = _tails(region, n=n, margin=margin, p_win=points)
            peak = int(zoomed.argmax())
            best = max(best, float(zoomed[peak]))
            low, high = points[max(peak - 1, 0)], points[min(peak + 1, _ZOOM_POINTS - 1)]
    return min(best, 1.0)


@lru_cache(maxsize=65536)
def exact_unconditional_p(wins: int, losses: int, n: int, margin: float) -> float:
    """Return sup over the nuisance of P(Z >= z_observed | d = -margin).

    Tables are ordered by the score statistic; the supremum is a grid of 96 nuisance values
    with three zooms around its two best. n up to a few hundred (memory grows with n squared).
    ValueError on counts that are not whole numbers, wins + losses > n, a margin outside (0, 1).
    """
    require_counts(wins=wins, losses=losses, n=n)
    require_table(wins, losses, n)
    require_open_unit(margin=margin)
    scores = _table_scores(n, margin)
    observed = float(score_z(wins, losses, n=n, delta=-margin))
    if observed == -np.inf:
        return 1.0
    chosen = scores >= observed - 1e-9 * (1 + abs(observed))
    tables = _all_tables(n)
    region = _Tables(tables.wins[chosen], tables.losses[chosen], tables.ties[chosen])
    return _largest_tail(region, n=n, margin=margin)


def _critical(n: int, margin: float, alpha: float, *, exact: bool) -> float:
    """The smallest score at which the gate admits: score alone, or max(score, exact)."""
    by_score = -float(ndtri(alpha))
    if not exact:
        return by_score
    tables = _all_tables(n)
    order = np.unique(np.round(_table_scores(n, margin), 9))
    order = order[order >= by_score - 1e-9]
    low, high = 0, order.size
    scores = _table_scores(n, margin)
    while low < high:
        middle = (low + high) // 2
        chosen = scores >= order[middle] - 2e-9
        region = _Tables(tables.wins[chosen], tables.losses[chosen], tables.ties[chosen])
        if _largest_tail(region, n=n, margin=margin) <= alpha:
            high = middle
        else:
            low = middle + 1
    return float(order[low]) - 2e-9 if low < order.size else np.inf


_critical_cached = lru_cache(maxsize=256)(_critical)


def admission_probability(
    n: int,
    margin: float,
    *,
    p_win: float,
    p_loss: float,
    alpha: float = 0.025,
    exact: bool = True,
) -> float:
    """Return the enumerated probability that the gate admits, given the true cell rates.

    `exact` False judges the score test alone. With p_loss - p_win = margin it is the type-I
    error, else the power. n up to a few hundred. ValueError on rates outside the simplex.
    """
    require_open_unit(margin=margin, alpha=alpha)
    if min(p_win, p_loss) < 0 or p_win + p_loss > 1 + 1e-12:
        raise ValueError(f"expected rates in the simplex, found p_win={p_win}, p_loss={p_loss}")
    critical = _critical_cached(n, margin, alpha, exact=exact)
    chosen = _table_scores(n, margin) >= critical
    tables = _all_tables(n)
    region = _Tables(tables.wins[chosen], tables.losses[chosen], tables.ties[chosen])
    rates = np.array([p_win]), np.array([p_loss])
    return float(table_probabilities(region, n=n, p_win=rates[0], p_loss=rates[1]).sum())
