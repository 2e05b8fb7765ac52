"""One arm against control in one suite, mode and concurrency, before it is judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from evalharness.verdicts.gate import GateP, gate_p, harm_p
from evalharness.verdicts.inputs import OutcomeTable, PlanFacts
from evalharness.verdicts.paired import Pair, pair_of

_UNGATED = GateP(1.0, None, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A contrast before multiplicity: p-values of both bounds of the unobserved cases."""

    arm: str
    table: OutcomeTable = field(repr=False)
    pair: Pair = field(repr=False)
    gate: bool
    margin: float | None
    worst: GateP
    best: GateP
    harm_worst: float
    harm_best: float


def is_gate(plan: PlanFacts, table: OutcomeTable) -> bool:
    """Whether the cell decides: a margin was declared, and its concurrency gates."""
    declared = plan.margin(table.suite, table.mode) is not None
    return declared and table.concurrency in plan.gate_concurrency


def measure(plan: PlanFacts, table: OutcomeTable, arm: str) -> Measured:
    """Compute the p-values of `arm` against the control in a cell."""
    pair = pair_of(table, control=plan.control, candidate=arm)
    margin = plan.margin(table.suite, table.mode)
    worst, best = pair.differences("worst"), pair.differences("best")
    hidden = bool(pair.unobserved.any())
    p_worst = _UNGATED if margin is None else gate_p(worst, margin=margin, alpha=plan.alpha)
    p_best = p_worst
    if margin is not None and hidden:
        p_best = gate_p(best, margin=margin, alpha=plan.alpha)
    return Measured(
        arm=arm,
        table=table,
        pair=pair,
        gate=is_gate(plan, table),
        margin=margin,
        worst=p_worst,
        best=p_best,
        harm_worst=harm_p(worst),
        harm_best=harm_p(best) if hidden else harm_p(worst),
    )
