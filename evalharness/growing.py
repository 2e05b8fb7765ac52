"""Always-valid verdicts over runs that hold new cases, not reruns: looking early costs nothing.

Each run asks other cases with the same arms, scorers, margins and levels. Evidence is gathered
in the order in which the plans were frozen, whatever the order on the command line, so that no
order can be picked by its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from evalharness.noninferiority import (
    Asked,
    changes,
    comparable,
    plan_facts,
    refuse_differences,
    refuse_unknown,
)
from evalharness.pairing import outcome_tables
from evalharness.runs import Run
from evalharness.verdicts import judge_growing
from evalharness.verdicts.aa import check_aa
from evalharness.verdicts.arms import adjust
from evalharness.verdicts.growing import GrowingVerdict
from evalharness.verdicts.inputs import PlanFacts
from evalharness.verdicts.precedence import exit_code
from evalharness.verdicts.types import OutcomeTable, Verdict

FORMAT = "evalharness/growing/1"
# Points of the evidence's path that a report keeps.
MAX_PATH = 200
NO_NLL = "log-probability gates have no always-valid form, so no arm with such a gate is admitted"


def same_question(runs: Sequence[Run]) -> None:
    """Refuse runs that differ in more than their cases; PlanError names every difference."""
    refuse_differences(runs, [_without_cases(run) for run in runs])


def _without_cases(run: Run) -> dict[str, Any]:
    asked = comparable(run)
    del asked["manifest"]
    suites = asked["suites"].items()
    asked["suites"] = {name: {**suite, "cases": "any"} for name, suite in suites}
    return asked


def growing_document(runs: Sequence[Run], asked: Asked) -> dict[str, Any]:
    """Return the always-valid verdicts (formats/growing.schema.json). Raises PlanError."""
    same_question(runs)
    refuse_unknown(runs[0], asked)
    ordered = sorted(runs, key=lambda run: (run.plan["created_utc"], run.sha256))
    # replays and files are each run's own matter; the question is common to all
    changed = dict.fromkeys(change for run in ordered for change in changes([run], asked))
    plan = plan_facts(ordered[:1], asked, tuple(changed))
    batches = _batches(plan, ordered)
    cells = [judge_growing(plan, tables, arm) for tables in batches for arm in plan.candidates]
    noise = _noise(plan, batches)
    unserved = dict(pair for run in ordered for pair in plan_facts([run], asked, ()).unserved)
    arms = _arms(plan, cells, noise=noise, unserved=unserved)
    return {
        "format": FORMAT,
        "headline": _headline(arms),
        "exploratory": [*([] if plan.declared else ["the run declared no plan"]), *changed],
        "alpha": plan.alpha,
        "control": plan.control,
        "runs": [
            {
                "name": run.name,
                "plan_sha256": run.sha256,
                "created_utc": run.plan["created_utc"],
                "cases": {name: suite["cases"] for name, suite in run.plan["suites"].items()},
            }
            for run in ordered
        ],
        "noise": noise,
        "arms": arms,
        "cells": [_cell(cell) for cell in cells],
    }


def _batches(plan: PlanFacts, runs: Sequence[Run]) -> list[list[OutcomeTable]]:
    """Return the tables of each gate cell, one a run, in the runs' order."""
    found: dict[tuple[str, str, int], list[OutcomeTable]] = {}
    for run in runs:
        for table in outcome_tables([run]):
            gated = plan.margin(table.suite, table.mode) is not None
            if gated and table.concurrency in plan.gate_concurrency:
                place = (table.suite, table.mode, table.concurrency)
                found.setdefault(place, []).append(table)
    return list(found.values())


def _noise(plan: PlanFacts, batches: Sequence[Sequence[OutcomeTable]]) -> list[str]:
    """Say where a batch's A/A launch differs from the control, or was not seen whole."""
    found = []
    for number, table in ((n, t) for tables in batches for n, t in enumerate(tables, start=1)):
        check = check_aa(plan, table)
        if check is not None and (check.failed or check.incomplete):
            place = f"{table.suite}.{table.mode} C{table.concurrency}, batch {number}"
            found.append(f"{place}: {check.reason}")
    return found


def _arms(
    plan: PlanFacts,
    cells: Sequence[GrowingVerdict],
    *,
    noise: Sequence[str],
    unserved: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Every gate cell must have reached its evidence, then the arms' multiplicity."""
    p_values = {
        arm: max((c.evidence.p for c in cells if c.arm == arm), default=1.0)
        for arm in plan.candidates
    }
    adjusted = adjust(plan, p_values)
    rows = []
    for arm, p in p_values.items():
        own = [cell for cell in cells if cell.arm == arm]
        waiting = [cell for cell in own if cell.evidence.rejected_at is None]
        verdict: Verdict = "admitted"
        if not plan.declared or plan.changed:
            verdict = "exploratory"
        elif arm in unserved:
            verdict = "incomplete"
        elif adjusted[arm] > plan.alpha or plan.nll_margins or noise:
            verdict = "undecided"
        rows.append(
            {
                "name": arm,
                "verdict": verdict,
                "reason": unserved.get(arm)
                or next(iter(noise), "")
                or _reason(plan, own=own, waiting=waiting, adjusted=adjusted[arm]),
                "p": p,
                "p_adjusted": adjusted[arm],
            }
        )
    return rows


def _reason(
    plan: PlanFacts,
    *,
    own: Sequence[GrowingVerdict],
    waiting: Sequence[GrowingVerdict],
    adjusted: float,
) -> str:
    if not own:
        return "nothing gates: no suite has a margin at a gate concurrency"
    if waiting:
        first = min(waiting, key=lambda cell: cell.evidence.e_value)
        place = f"{first.suite}.{first.mode} C{first.concurrency}"
        return (
            f"{len(waiting)} of {len(own)} gate cells lack evidence; least {place}: {first.reason}"
        )
    if plan.nll_margins:
        return NO_NLL
    if adjusted > plan.alpha:
        return f"every gate cell passes alone, but not after the arms' multiplicity: {adjusted:.4f}"
    return f"all {len(own)} gate cells reached the evidence of 1/alpha"


def _headline(arms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    order: tuple[Verdict, ...] = ("incomplete", "undecided", "exploratory", "admitted")
    groups = {v: [arm["name"] for arm in arms if arm["verdict"] == v] for v in order}
    parts = [f"{verdict}: {', '.join(names)}" for verdict, names in groups.items() if names]
    return {
        "verdict": next((v for v, names in groups.items() if names), "undecided"),
        "sentence": ("; ".join(parts) or "no arm beside the control").capitalize() + ".",
        "exit_code": exit_code(arm["verdict"] for arm in arms),
    }


def _cell(cell: GrowingVerdict) -> dict[str, Any]:
    row = asdict(cell)
    evidence = row.pop("evidence")
    values = evidence["e_values"]
    step = max(1, -(-len(values) // MAX_PATH))
    kept = sorted({*range(step - 1, len(values), step), len(values) - 1})
    return {
        **row,
        "threshold": evidence["threshold"],
        "admitted_at": evidence["rejected_at"],
        "e_value": cell.evidence.e_value,
        "p": cell.evidence.p,
        "path": [[i + 1, values[i]] for i in kept if i >= 0],
    }
