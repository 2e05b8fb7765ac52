"""The A/A launch against the control: the server's own noise, and its consequence.

Which of two equal launches is called control is chance, so a difference in either direction
fails the check: a drifted control flatters every arm as much as a drifted A/A accuses it.
Like harm of an arm, a difference must hold over all the cells that are looked at (Bonferroni):
of a dozen cells one in five runs would otherwise fail by chance alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from evalharness.stats import sign_test
from evalharness.verdicts.cell_types import Discordance
from evalharness.verdicts.gate import gate_p
from evalharness.verdicts.inputs import OutcomeTable, PlanFacts
from evalharness.verdicts.paired import Pair, net_signs, pair_of
from evalharness.verdicts.types import AaCheck
from evalharness.verdicts.wording import p_text


def _either_way(pair: Pair) -> float:
    """Exact one-sided p in the direction that the differences point to."""
    signs = net_signs(pair.differences("worst"))
    wins, losses = int((signs > 0).sum()), int((signs < 0).sum())
    return sign_test(max(wins, losses), min(wins, losses)).p_one_sided


@dataclass(frozen=True, slots=True)
class _Limits:
    margin: float | None
    alpha: float
    contrasts: int


def _fails(pair: Pair, limits: _Limits) -> bool:
    margin, alpha = limits.margin, limits.alpha
    if _either_way(pair) * limits.contrasts > alpha:
        return False
    if margin is None:
        return True
    # a real but small drift is no failure where both directions stay inside the margin
    there = gate_p(pair.differences("worst"), margin=margin, alpha=alpha).p
    back = gate_p(
        Pair(pair.candidate, pair.control).differences("worst"), margin=margin, alpha=alpha
    ).p
    return max(there, back) > alpha


def _missing(table: OutcomeTable) -> AaCheck:
    return AaCheck(
        suite=table.suite,
        mode=table.mode,
        concurrency=table.concurrency,
        table=None,
        nll=None,
        p=1.0,
        failed=False,
        incomplete=True,
        reason="the declared A/A launch has no data here",
    )


def check_aa(plan: PlanFacts, table: OutcomeTable, *, contrasts: int = 1) -> AaCheck | None:
    """Judge the A/A launch of a cell; None where the plan declared none.

    `contrasts`: how many cells are judged together, over which a difference must hold.
    Judged on the cases both launches observed; "incomplete" where the unobserved ones could
    make it fail, or where the launch is missing.
    """
    if plan.aa is None:
        return None
    if plan.aa not in table.arms or plan.control not in table.arms:
        return _missing(table)
    pair = pair_of(table, control=plan.control, candidate=plan.aa)
    seen, hidden = pair.observed(), int(pair.unobserved.sum())
    counts: Discordance = seen.discordance()
    if counts.n == 0:
        return _missing(table)
    limits = _Limits(plan.margin(table.suite, table.mode), plan.alpha, contrasts)
    failed = _fails(seen, limits)
    worst = hidden > 0 and any(
        _fails(way.bounded("worst"), limits) for way in (pair, Pair(pair.candidate, pair.control))
    )
    reason = f"{counts.wins + counts.losses} of {counts.n} cases differ between equal launches"
    if failed:
        reason = f"two launches of the control differ ({p_text(_either_way(seen))}): {reason}"
    elif worst:
        reason += f"; {hidden} unobserved cases could hide a difference"
    return AaCheck(
        suite=table.suite,
        mode=table.mode,
        concurrency=table.concurrency,
        table=counts,
        nll=None,
        p=_either_way(seen),
        failed=failed,
        incomplete=worst and not failed,
        reason=reason,
    )
