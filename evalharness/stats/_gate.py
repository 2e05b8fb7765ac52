"""The gate: non-inferiority of one paired contrast, and the smallest margin it admits."""

from __future__ import annotations

from scipy.special import ndtr, ndtri

from evalharness.stats._checks import require_counts, require_open_unit, require_table
from evalharness.stats._discordant import sign_test
from evalharness.stats._exact import EXACT_LIMIT, exact_unconditional_p
from evalharness.stats._results import GateVerdict, Noninferiority
from evalharness.stats._score import score_limit, score_z

_MARGIN_STEP = 5e-5


def noninferiority(
    wins: int, losses: int, n: int, margin: float, alpha: float = 0.025
) -> Noninferiority:
    """Judge "candidate is worse than control by less than `margin`" (a fraction of cases).

    p = max(score, exact unconditional) up to 400 cases, the score test above. The verdict is
    "admitted" when p <= alpha; else "harm shown" when the one-sided sign test is <= alpha;
    else "undecided". Tango 1998; Hsueh, Liu & Chen 2001. ValueError on counts that are not
    whole numbers or exceed n, and on a margin or alpha outside (0, 1).
    """
    require_counts(wins=wins, losses=losses, n=n)
    require_table(wins, losses, n)
    require_open_unit(margin=margin, alpha=alpha)
    z = float(score_z(wins, losses, n=n, delta=-margin))
    p_score = float(ndtr(-z))
    p_exact = exact_unconditional_p(wins, losses, n, margin) if n <= EXACT_LIMIT else None
    p = p_score if p_exact is None else max(p_score, p_exact)
    verdict: GateVerdict = "undecided"
    if p <= alpha:
        verdict = "admitted"
    elif sign_test(losses, wins).p_one_sided <= alpha:
        verdict = "harm shown"
    lower = score_limit(wins, losses, n=n, z=-float(ndtri(alpha)))
    return Noninferiority(z, p_score, p_exact, p, lower, verdict)


def smallest_admitted_margin(wins: int, losses: int, n: int, alpha: float = 0.025) -> float:
    """Return the smallest margin (a fraction, to 0.005 points) at which the gate admits.

    1.0 means that no margin below 100 points does. Errors: noninferiority.
    """
    require_counts(wins=wins, losses=losses, n=n)
    require_table(wins, losses, n)
    require_open_unit(alpha=alpha)
    low = max(-score_limit(wins, losses, n=n, z=-float(ndtri(alpha))), _MARGIN_STEP)
    if n > EXACT_LIMIT or low >= 1:
        return min(low, 1.0)
    # the exact p needs a little more than the score test: bracket upwards, then bisect
    step, high = max(0.02 * low, 1e-3), low
    while exact_unconditional_p(wins, losses, n, high) > alpha:
        low, high = high, high + step
        step *= 2
        if high >= 1:
            return 1.0
    while high - low > _MARGIN_STEP:
        middle = 0.5 * (low + high)
        if exact_unconditional_p(wins, losses, n, middle) > alpha:
            low = middle
        else:
            high = middle
    return high
