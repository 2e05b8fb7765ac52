"""How many cases a margin needs, and which margin a suite can carry."""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import ndtri

from evalharness.stats._checks import require_counts, require_open_unit
from evalharness.stats._exact import admission_probability

# below this many cases the power is a saw-tooth that no smooth formula follows
_SEARCH_BELOW = 150


def _smooth_cases(
    margin: float, discordance: float, *, alpha: float, power: float, difference: float
) -> float:
    """The score test's sample size by its normal approximation (not rounded)."""
    p_loss = (discordance - difference) / 2
    b = -discordance - (2 - difference) * margin
    c = p_loss * margin * (1 + margin)
    q = (math.sqrt(max(b * b - 8 * c, 0.0)) - b) / 4
    null = math.sqrt(max(2 * q - margin * (1 + margin), 0.0))
    alternative = math.sqrt(max(discordance - difference**2, 0.0))
    reach = -float(ndtri(alpha)) * null + float(ndtri(power)) * alternative
    return (reach / (margin + difference)) ** 2


def _check(discordance: float, difference: float, alpha: float, power: float) -> None:
    require_open_unit(alpha=alpha, power=power)
    if not 0 <= discordance <= 1 or abs(difference) > discordance:
        raise ValueError(
            "expected 0 <= |difference| <= discordance <= 1, found "
            f"difference={difference}, discordance={discordance}"
        )
    if power < 0.5 or alpha > 0.5:
        raise ValueError(f"expected power >= 0.5 and alpha <= 0.5, found {power} and {alpha}")


def required_cases(
    margin: float,
    discordance: float,
    alpha: float = 0.025,
    power: float = 0.8,
    *,
    difference: float = 0.0,
    exact: bool = False,
) -> int:
    """Return the cases needed to admit with the given power at the true `difference`.

    `margin`, `discordance` (share of cases on which the arms differ) and `difference`
    (candidate minus control) are fractions. Score test (Nam 1997; Tango 1998) by its normal
    approximation; below 150 cases searched upwards on the enumerated power, with `exact` on
    that of the whole gate, max(score, exact). ValueError where the difference reaches the
    margin (no number of cases would do) or on other ranges.
    """
    require_open_unit(margin=margin)
    _check(discordance, difference, alpha, power)
    if difference <= -margin:
        raise ValueError(f"difference {difference} reaches the margin {margin}: no n would do")
    smooth = _smooth_cases(margin, discordance, alpha=alpha, power=power, difference=difference)
    n = max(1, math.ceil(smooth - 1e-9))
    p_win, p_loss = (discordance + difference) / 2, (discordance - difference) / 2
    while n < _SEARCH_BELOW:
        reached = admission_probability(
            n, margin, p_win=p_win, p_loss=p_loss, alpha=alpha, exact=exact
        )
        if reached >= power:
            break
        n += 1
    return n


def smallest_margin(n: int, discordance: float, alpha: float = 0.025, power: float = 0.8) -> float:
    """Return the smallest margin (a fraction) that n cases admit with the given power.

    The arms are taken as truly equal with the given share of discordant cases; with
    `discordance` 0 this is the score limit of a fully concordant table, z^2/(n + z^2).
    The inverse of required_cases' normal approximation. 1.0: none below 100 points.
    ValueError on n < 1 and other ranges.
    """
    require_counts(n=n)
    _check(discordance, 0.0, alpha, power)
    if n < 1:
        raise ValueError("n: expected at least one case")

    def short(margin: float) -> float:
        needed = _smooth_cases(margin, discordance, alpha=alpha, power=power, difference=0.0)
        return needed - n

    low, high = 1e-6, 1 - 1e-9
    if short(high) > 0:
        return 1.0
    return float(brentq(short, low, high, xtol=1e-10))


def required_items(
    omega2: float,
    sigma2: float,
    delta: float,
    *,
    alpha: float = 0.05,
    power: float = 0.8,
    replays: int = 1,
) -> int:
    """Return the cases needed to detect a mean difference `delta`, two-sided.

    `omega2`: variance between cases of the paired difference; `sigma2`: replay variance of
    one arm plus the other's, divided by `replays`. Miller 2024, arXiv 2411.00640. ValueError
    on negative variances, delta 0, replays < 1.
    """
    require_open_unit(alpha=alpha, power=power)
    if omega2 < 0 or sigma2 < 0 or delta == 0 or replays < 1:
        raise ValueError(
            "expected variances >= 0, delta != 0, replays >= 1; found "
            f"{omega2}, {sigma2}, {delta}, {replays}"
        )
    reach = -float(ndtri(alpha / 2)) + float(ndtri(power))
    return math.ceil(reach**2 * (omega2 + sigma2 / replays) / delta**2 - 1e-9)
