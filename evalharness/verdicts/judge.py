"""The judge: a frozen plan and paired tables in, the verdict of the whole run out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from evalharness.stats import holm
from evalharness.verdicts.aa import check_aa
from evalharness.verdicts.arms import Adjusted, ArmCells, adjust, arm_p, judge_arm
from evalharness.verdicts.binary import judge_cell
from evalharness.verdicts.cell_types import CellVerdict, NllCellVerdict
from evalharness.verdicts.checks import check_tables, exploratory_reasons
from evalharness.verdicts.effects import nll_effects, outcome_effects
from evalharness.verdicts.inputs import NllTable, OutcomeTable, PlanFacts
from evalharness.verdicts.measured import Measured, measure
from evalharness.verdicts.nll import check_nll_aa, judge_nll, measure_nll
from evalharness.verdicts.nll_measured import MeasuredNll
from evalharness.verdicts.pooled import pool, reach_of
from evalharness.verdicts.precedence import exit_code
from evalharness.verdicts.types import AaCheck, ArmVerdict, PooledVerdict, RunVerdict, SuiteReach

_Place = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class _Harm:
    """Harm of one contrast after Holm over its family, at both bounds of the unobserved."""

    worst: float
    best: float


def _adjust_harm(
    measured: Sequence[Measured], measured_nll: Sequence[MeasuredNll]
) -> tuple[list[_Harm], list[_Harm]]:
    """Holm over the declared contrasts: gate cells are one family, described cells another."""
    out: dict[int, _Harm] = {}
    everything: list[Measured | MeasuredNll] = [*measured, *measured_nll]
    for gates in (True, False):
        family = [i for i, m in enumerate(everything) if m.gate == gates]
        worst = holm([_harm_of(everything[i], "worst") for i in family])
        best = holm([_harm_of(everything[i], "best") for i in family])
        out.update({i: _Harm(w, b) for i, w, b in zip(family, worst, best, strict=True)})
    ordered = [out[i] for i in range(len(everything))]
    return ordered[: len(measured)], ordered[len(measured) :]


def _harm_of(m: Measured | MeasuredNll, bound: str) -> float:
    if isinstance(m, MeasuredNll):
        return m.p_harm
    return m.harm_worst if bound == "worst" else m.harm_best


def _candidates_of(plan: PlanFacts, table: OutcomeTable | NllTable) -> list[str]:
    if plan.control not in table.arms or not table.case_ids:
        return []
    return [arm for arm in plan.candidates if arm in table.arms]


def _missing(
    plan: PlanFacts, arm: str, *, have: Sequence[OutcomeTable], have_nll: Sequence[NllTable]
) -> tuple[str, ...]:
    """Declared gate cells of an arm without data (of the arm itself or of the control)."""
    wanted = [
        (suite, mode, c)
        for suite, mode in plan.suites
        for c in plan.gate_concurrency
        if plan.margin(suite, mode) is not None
    ]
    wanted += [("nll", m.mode, c) for m in plan.nll_margins for c in plan.gate_concurrency]
    found = {(t.suite, t.mode, t.concurrency) for t in have if arm in _candidates_of(plan, t)}
    found |= {("nll", t.mode, t.concurrency) for t in have_nll if arm in _candidates_of(plan, t)}
    return tuple(
        f"{suite}.{mode} C{c}"
        for suite, mode, c in dict.fromkeys(wanted)
        if (suite, mode, c) not in found
    )


def _aa_checks(
    plan: PlanFacts, outcomes: Sequence[OutcomeTable], nll: Sequence[NllTable]
) -> dict[_Place, AaCheck]:
    count = len(outcomes) + len(nll)
    checks = [check_aa(plan, t, contrasts=count) for t in outcomes]
    checks += [check_nll_aa(plan, t, contrasts=count) for t in nll]
    return {(c.suite, c.mode, c.concurrency): c for c in checks if c is not None}


def _judge_cells(
    plan: PlanFacts,
    outcomes: Sequence[OutcomeTable],
    nll: Sequence[NllTable],
    *,
    aa: Mapping[_Place, AaCheck],
) -> tuple[list[CellVerdict], list[NllCellVerdict]]:
    measured = [measure(plan, t, arm) for t in outcomes for arm in _candidates_of(plan, t)]
    measured_nll = [measure_nll(plan, t, arm) for t in nll for arm in _candidates_of(plan, t)]
    harm, harm_nll = _adjust_harm(measured, measured_nll)
    cells = [
        judge_cell(
            plan,
            m,
            harm_worst=h.worst,
            harm_best=h.best,
            aa=aa.get((m.table.suite, m.table.mode, m.table.concurrency)),
        )
        for m, h in zip(measured, harm, strict=True)
    ]
    nll_cells = [
        judge_nll(plan, m, harm=h.worst, aa=aa.get(("nll", m.table.mode, m.table.concurrency)))
        for m, h in zip(measured_nll, harm_nll, strict=True)
    ]
    return cells, nll_cells


def _pools(plan: PlanFacts, outcomes: Sequence[OutcomeTable]) -> tuple[PooledVerdict, ...]:
    gates = [t for t in outcomes if t.concurrency in plan.gate_concurrency]
    grouped = groupby(sorted(gates, key=lambda t: (t.suite, t.mode)), lambda t: (t.suite, t.mode))
    levels = [list(tables) for _, tables in grouped]
    pooled = [pool(plan, tables, arm) for arm in plan.candidates for tables in levels]
    return tuple(p for p in pooled if p is not None)


def _reaches(plan: PlanFacts, outcomes: Sequence[OutcomeTable]) -> tuple[SuiteReach, ...]:
    by_suite = {(t.suite, t.mode): t for t in outcomes if t.case_ids}
    return tuple(reach_of(plan, table) for table in by_suite.values())


def _judge_arms(
    plan: PlanFacts,
    outcomes: Sequence[OutcomeTable],
    nll: Sequence[NllTable],
    *,
    aa: Mapping[_Place, AaCheck],
    exploratory: bool,
) -> tuple[ArmVerdict, ...]:
    cells, nll_cells = _judge_cells(plan, outcomes, nll, aa=aa)
    per_arm = [
        ArmCells(
            arm,
            tuple(c for c in cells if c.arm == arm),
            tuple(c for c in nll_cells if c.arm == arm),
            _missing(plan, arm, have=outcomes, have_nll=nll),
            tuple(text for name, text in plan.unserved if name == arm),
        )
        for arm in plan.candidates
    ]
    p_values = {c.arm: arm_p(c) for c in per_arm}
    worst = adjust(plan, p_values)
    best = adjust(plan, {c.arm: arm_p(c, best=True) for c in per_arm})
    return tuple(
        judge_arm(
            plan,
            c,
            p=p_values[c.arm],
            adjusted=Adjusted(worst[c.arm], best[c.arm]),
            exploratory=exploratory,
        )
        for c in per_arm
    )


def judge(
    plan: PlanFacts, outcomes: Sequence[OutcomeTable], nll: Sequence[NllTable] = ()
) -> RunVerdict:
    """Return the verdict of every arm of the plan, with everything the report says of it.

    `outcomes`: one table per suite x mode x concurrency; `nll`: one per mode x concurrency.
    Raises PlanError where tables mix manifests or scorers, or repeat a cell.
    """
    tables: list[OutcomeTable | NllTable] = [*outcomes, *nll]
    check_tables(plan, tables)
    outcomes = [t for t in outcomes if t.case_ids]  # a table without cases is missing data
    reasons = exploratory_reasons(plan, tables)
    aa = _aa_checks(plan, outcomes, nll)
    arms = _judge_arms(plan, outcomes, nll, aa=aa, exploratory=bool(reasons))
    effects = [outcome_effects(plan, t) for t in outcomes] + [nll_effects(plan, t) for t in nll]
    return RunVerdict(
        alpha=plan.alpha,
        sequence=plan.sequence,
        exploratory=reasons,
        arms=arms,
        aa=tuple(aa.values()),
        effects=tuple(effects),
        pooled=_pools(plan, outcomes),
        reach=_reaches(plan, outcomes),
        exit_code=exit_code(arm.verdict for arm in arms),
    )
