"""Factorial effects per suite and concurrency, on cases that every arm observed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evalharness.stats import FactorialEffect, factorial_effects
from evalharness.verdicts.inputs import UNOBSERVED, FloatCube, NllTable, OutcomeTable, PlanFacts
from evalharness.verdicts.nll_data import observed_cases
from evalharness.verdicts.types import EffectsTable


@dataclass(frozen=True, slots=True)
class _Design:
    """Arms of a full two-level factorial with 0 at the control's level; or why there is none."""

    arms: tuple[str, ...]
    levels: tuple[tuple[int, ...], ...]
    factors: tuple[str, ...]
    reason: str


def _none(reason: str) -> _Design:
    return _Design((), (), (), reason)


def design_of(plan: PlanFacts, present: tuple[str, ...]) -> _Design:
    """Return the factorial that the plan's arms form, if all its arms are present."""
    levels = {arm.name: dict(arm.levels) for arm in plan.arms if arm.name != plan.aa}
    factors = tuple(name for name, options in plan.factors if len(options) > 1)
    if not factors or plan.control not in levels:
        return _none("not estimable: the plan has no factor with two levels")
    wide = [name for name, options in plan.factors if len(options) > 2]
    if wide:
        return _none(f"not estimable: more than two levels of {', '.join(wide)}")
    base = levels[plan.control]
    coded = {
        name: tuple(int(chosen.get(f) != base.get(f)) for f in factors)
        for name, chosen in levels.items()
    }
    if len(set(coded.values())) != 2 ** len(factors) or len(coded) != 2 ** len(factors):
        return _none(f"not estimable: {len(coded)} arms, a full factorial has {2 ** len(factors)}")
    absent = [name for name in coded if name not in present]
    if absent:
        return _none(f"not estimable: no data of {', '.join(absent)}")
    return _Design(tuple(coded), tuple(coded.values()), factors, "")


@dataclass(frozen=True, slots=True)
class _Cell:
    suite: str
    mode: str
    concurrency: int
    unit: str


def _estimate(plan: PlanFacts, cell: _Cell, *, design: _Design, values: FloatCube) -> EffectsTable:
    """`values`: cases x arms of the design."""
    cases = values.shape[0]
    reason = design.reason or ("" if cases >= 2 else f"not estimable: {cases} complete cases")
    effects: tuple[FactorialEffect, ...] = ()
    if not reason:
        effects = factorial_effects(
            values, design.levels, confidence=1 - 2 * plan.alpha, seed=plan.seed
        ).effects
    return EffectsTable(
        suite=cell.suite,
        mode=cell.mode,
        concurrency=cell.concurrency,
        unit=cell.unit,
        factors=design.factors,
        cases=cases,
        effects=effects,
        reason=reason,
    )


def outcome_effects(plan: PlanFacts, table: OutcomeTable) -> EffectsTable:
    """Return the effects on the share of correct cases (mean over replays)."""
    design = design_of(plan, table.arms)
    values = np.empty((0, 0))
    if not design.reason:
        cube = table.outcomes[[table.arms.index(arm) for arm in design.arms]]
        complete = (cube != UNOBSERVED).all(axis=(0, 1))
        values = cube[:, :, complete].mean(axis=1, dtype=np.float64).T
    cell = _Cell(table.suite, table.mode, table.concurrency, "share of cases")
    return _estimate(plan, cell, design=design, values=values)


def nll_effects(plan: PlanFacts, table: NllTable) -> EffectsTable:
    """Return the effects on NLL, each case's mean over its tokens (case-weighted)."""
    design = design_of(plan, table.arms)
    values = np.empty((0, 0))
    if not design.reason:
        rows = [table.arms.index(arm) for arm in design.arms]
        owner = np.repeat(np.arange(table.sizes.size), table.sizes)
        cube = table.logprobs[rows]
        # a token counts only where every arm and replay has its value
        known = np.isfinite(cube).all(axis=(0, 1))
        sizes = np.bincount(owner[known], minlength=table.sizes.size)
        cases = observed_cases(table, design.arms) & (sizes > 0)
        means = -cube[:, :, known].mean(axis=1)
        summed = [np.bincount(owner[known], weights=m, minlength=sizes.size) for m in means]
        values = np.stack(summed, axis=1)[cases] / sizes[cases, None]
    cell = _Cell("nll", table.mode, table.concurrency, "nats per token")
    return _estimate(plan, cell, design=design, values=values)
