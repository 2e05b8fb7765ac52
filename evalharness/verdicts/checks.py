"""What is refused before anything is judged: tables that do not belong together."""

from __future__ import annotations

from collections.abc import Sequence

from evalharness.errors import PlanError
from evalharness.verdicts.inputs import NllTable, OutcomeTable, PlanFacts


def _suite(table: OutcomeTable | NllTable) -> str:
    return table.suite if isinstance(table, OutcomeTable) else "nll"


def _cell(table: OutcomeTable | NllTable) -> str:
    return f"{_suite(table)}.{table.mode} C{table.concurrency}"


def _same_manifest(tables: Sequence[OutcomeTable | NllTable]) -> None:
    for table in tables[1:]:
        if table.manifest != tables[0].manifest:
            raise PlanError(
                f"manifest differs: {_cell(tables[0])} has {tables[0].manifest}, {_cell(table)} "
                f"has {table.manifest}; judge runs of one manifest only"
            )


def _same_scorer(tables: Sequence[OutcomeTable | NllTable]) -> None:
    seen: dict[tuple[str, str], OutcomeTable | NllTable] = {}
    for table in tables:
        first = seen.setdefault((_suite(table), table.mode), table)
        if first.scorer != table.scorer:
            raise PlanError(
                f"scorer differs: {_cell(first)} has {first.scorer}, {_cell(table)} has "
                f"{table.scorer}; rescore the run with one scorer"
            )


def check_tables(plan: PlanFacts, tables: Sequence[OutcomeTable | NllTable]) -> None:
    """Raise PlanError where tables mix manifests or scorers, repeat a cell, or lack the shape.

    Also where the plan's sequence names an arm that the plan does not have.
    """
    if plan.sequence != "holm":
        unknown = [name for name in plan.sequence if name not in plan.candidates]
        if unknown or len(set(plan.sequence)) != len(plan.sequence):
            raise PlanError(
                f"sequence: expected candidate arms once each ({', '.join(plan.candidates)}), "
                f"found {', '.join(plan.sequence)}"
            )
    if tables:
        _same_manifest(tables)
        _same_scorer(tables)
    cells = [_cell(table) for table in tables]
    twice = {cell for cell in cells if cells.count(cell) > 1}
    if twice:
        raise PlanError(f"more than one table of {', '.join(sorted(twice))}; join their replays")
    for table in tables:
        shape = table.outcomes.shape if isinstance(table, OutcomeTable) else table.observed.shape
        expected = (len(table.arms), table.replays, len(table.case_ids))
        if shape != expected or len(set(table.case_ids)) != len(table.case_ids):
            raise PlanError(
                f"{_cell(table)}: expected arms x replays x distinct cases {expected}, "
                f"found {shape}"
            )


def exploratory_reasons(
    plan: PlanFacts, tables: Sequence[OutcomeTable | NllTable]
) -> tuple[str, ...]:
    """Return why verdicts are exploratory; empty where the frozen plan holds."""
    reasons = [] if plan.declared else ["the run has no plan that was frozen before it"]
    reasons += [f"changed after the plan was frozen: {change}" for change in plan.changed]
    most = max((table.replays for table in tables), default=0)
    if most > plan.replays:
        reasons.append(f"{most} replays are given, the plan declared {plan.replays}")
    return tuple(reasons)
