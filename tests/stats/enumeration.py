"""Independent enumeration of a gate's type-I error, and the gates that must not pass it.

Nothing here uses the package's own trinomial: probabilities come from log-gamma directly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri, xlogy

from evalharness.stats import noninferiority, score_z

Region = NDArray[np.bool_]
# (wins, losses, n, margin, alpha) -> which tables are admitted
Gate = Callable[[NDArray[np.int64], NDArray[np.int64], int, float, float], Region]


def tables(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every (wins, losses) of n cases."""
    wins, losses = np.nonzero(np.add.outer(np.arange(n + 1), np.arange(n + 1)) <= n)
    return wins.astype(np.int64), losses.astype(np.int64)


def type_one(region: Region, n: int, margin: float, discordance: NDArray[np.float64]) -> float:
    """Largest probability of the region over the nuisance, with p_loss - p_win = margin."""
    wins, losses = tables(n)
    w, lost = wins[region], losses[region]
    ties = n - w - lost
    choose = gammaln(n + 1) - gammaln(w + 1) - gammaln(lost + 1) - gammaln(ties + 1)
    worst = 0.0
    for psi in discordance:
        p_win, p_loss = max((psi - margin) / 2, 0.0), (psi + margin) / 2
        log_p = choose + xlogy(w, p_win) + xlogy(lost, p_loss) + xlogy(ties, max(1 - psi, 0.0))
        worst = max(worst, float(np.exp(log_p).sum()))
    return worst


def score_gate(
    wins: NDArray[np.int64], losses: NDArray[np.int64], n: int, margin: float, alpha: float
) -> Region:
    """Tango's score test alone."""
    return np.asarray(score_z(wins, losses, n=n, delta=-margin) >= -ndtri(alpha))


def product_gate(
    wins: NDArray[np.int64], losses: NDArray[np.int64], n: int, margin: float, alpha: float
) -> Region:
    """The public `noninferiority` on each table, found by bisection along the score.

    Its p falls along the score, so one threshold tells the admitted tables; the tests check
    that on tables drawn at random.
    """
    z = score_z(wins, losses, n=n, delta=-margin)
    order = np.argsort(z, kind="stable")
    low, high = 0, order.size
    while low < high:
        middle = (low + high) // 2
        table = order[middle]
        one = noninferiority(int(wins[table]), int(losses[table]), n, margin, alpha)
        if one.verdict == "admitted":
            high = middle
        else:
            low = middle + 1
    threshold = z[order[low]] if low < order.size else np.inf
    return np.asarray(z >= threshold - 1e-9)


def wald_gate(
    wins: NDArray[np.int64], losses: NDArray[np.int64], n: int, margin: float, alpha: float
) -> Region:
    """Wald: never gate on it. Its interval is empty where no case differs."""
    d = (wins - losses) / n
    se = np.sqrt(np.maximum((wins + losses) / n - d * d, 0.0) / n)
    return np.asarray(d + ndtri(alpha) * se > -margin)


def percentile_gate(
    wins: NDArray[np.int64], losses: NDArray[np.int64], n: int, margin: float, alpha: float
) -> Region:
    """Percentile bootstrap of the difference by its exact law: never gate on it."""
    size = 1 << int(np.ceil(np.log2(2 * n + 2)))
    angle = 2 * np.pi * np.arange(size) / size
    support = np.where(np.arange(size) <= n, np.arange(size), np.arange(size) - size)
    reaches = support <= -margin * n + 1e-9
    admitted = np.empty(wins.size, dtype=np.bool_)
    for block in np.array_split(np.arange(wins.size), max(1, wins.size * size // 4_000_000)):
        up, down = wins[block, None] / n, losses[block, None] / n
        law = np.fft.ifft(
            (1 - up - down + up * np.exp(-1j * angle) + down * np.exp(1j * angle)) ** n, axis=1
        ).real
        admitted[block] = (law * reaches).sum(axis=1) < alpha
    return admitted


def check_calibrated(gate: Gate, *, n: int, margin: float, alpha: float, slack: float) -> None:
    """Assert that the gate's type-I error at the margin stays within alpha + slack.

    Discordance from the margin to 30% in 61 steps, and on to 100% in 30.
    """
    wins, losses = tables(n)
    region = gate(wins, losses, n, margin, alpha)
    grid = np.concatenate([np.linspace(margin, 0.30, 61), np.linspace(0.30, 1.0, 30)])
    found = type_one(region, n, margin, grid)
    assert region.any(), "a gate that admits nothing would pass for nothing"
    assert found <= alpha + slack, f"type-I {found:.4f} for nominal {alpha}"
