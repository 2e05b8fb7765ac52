"""The report as one JSON document: everything the pages show, and nothing they add."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from evalharness import __version__
from evalharness.noninferiority import Asked, Judgement
from evalharness.pairing import arm_names, slots
from evalharness.report.facts import (
    load_rows,
    provenance,
    route_rows,
    stopped_rows,
    throughput_rows,
)
from evalharness.report.flips import excluded_rows, flip_rows, unobserved_rows
from evalharness.report.limits import cannot_say
from evalharness.report.placement import confounded, placement_section
from evalharness.report.readings import other_scorers, reading_rows
from evalharness.report.sections import (
    count_rows,
    first_difference_rows,
    never_run_rows,
    nll_section,
    nll_with_places,
)
from evalharness.report.speed import speed_section
from evalharness.report.time_spent import idle_row, time_rows
from evalharness.runs import Run
from evalharness.verdicts.types import ArmVerdict, CellVerdict, NllCellVerdict

FORMAT = "evalharness/report/1"
VERDICTS = ("harm shown", "incomplete", "undecided", "exploratory", "admitted")


def build_document(runs: Sequence[Run], judged: Judgement, asked: Asked) -> dict[str, Any]:
    """Return the report of the runs (formats/report.schema.json). Deterministic: no clock."""
    nll = nll_with_places(runs[0].plan, judged.nll)
    load = [row for run in runs for row in load_rows(run)]
    placement = placement_section(runs)
    verdict = judged.verdict
    document = {
        "format": FORMAT,
        "harness_version": __version__,
        "headline": headline(judged),
        "exploratory": list(verdict.exploratory),
        "design": _design(runs, judged, asked),
        "arms": [_arm(arm) for arm in verdict.arms],
        "counts": list(count_rows(judged)),
        "cells": [asdict(cell) for arm in verdict.arms for cell in arm.cells],
        "aa": [asdict(check) for check in verdict.aa],
        "flips": flip_rows(runs, judged.tables),
        "unobserved": unobserved_rows(runs, judged.tables, nll),
        "excluded": excluded_rows(runs, judged.tables),
        "readings": reading_rows(runs),
        "other_scorers": other_scorers(runs),
        "stopped": [row for run in runs for row in (*stopped_rows(run), *never_run_rows(run))],
        "pooled": [asdict(row) for row in verdict.pooled],
        "factorial": [asdict(table) for table in verdict.effects],
        "nll": nll_section(runs, judged, nll),
        "first_difference": list(first_difference_rows(runs)),
        "concurrency": load,
        "route_hits": [row for run in runs for row in route_rows(run)],
        "provenance": provenance(runs),
        "placement": placement,
        "cannot_say": [*confounded(placement), *cannot_say(runs, judged, load)],
        "throughput": [row for run in runs for row in throughput_rows(run)],
        "speed": speed_section(runs, judged),
        "time": [row for run in runs for row in time_rows(run)],
        "idle": [idle_row(run) for run in runs],
    }
    cleaned = without_empty_intervals(clean(document))
    assert isinstance(cleaned, dict)
    return cleaned


def clean(value: Any) -> Any:
    """Return plain JSON data: NaN and infinities as null, tuples as lists, numpy as numbers.

    Floats keep ten digits: the last ones depend on the machine's summation order, and a report
    made again elsewhere must have the same bytes.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return clean(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): clean(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.10g}") if math.isfinite(value) else None
    return value


def without_empty_intervals(value: Any) -> Any:
    """Return the document with null limits where an interval has no width.

    Where every case has the same difference the formula gives one point, which is no bound.
    """
    if isinstance(value, list):
        return [without_empty_intervals(item) for item in value]
    if not isinstance(value, dict):
        return value
    out = {name: without_empty_intervals(item) for name, item in value.items()}
    for name in ("interval", "pure_interval"):
        limits = out.get(name)
        if isinstance(limits, list) and limits[0] == limits[1]:
            out[name] = [None, None]
    if "lower" in out and out["lower"] == out.get("upper"):
        out |= {"lower": None, "upper": None}
    return out


def headline(judged: Judgement) -> dict[str, Any]:
    """The run's verdict: the gravest of its arms, with a sentence and the exit code."""
    groups = {
        verdict: [arm.arm for arm in judged.verdict.arms if arm.verdict == verdict]
        for verdict in VERDICTS
    }
    parts = [f"{verdict}: {', '.join(arms)}" for verdict, arms in groups.items() if arms]
    gravest = next((verdict for verdict, arms in groups.items() if arms), "undecided")
    sentence = "; ".join(parts) if parts else "no arm beside the control was planned"
    return {
        "verdict": gravest,
        "sentence": sentence[0].upper() + sentence[1:] + ".",
        "exit_code": judged.verdict.exit_code,
        "arms": {verdict: len(arms) for verdict, arms in groups.items()},
    }


def _design(runs: Sequence[Run], judged: Judgement, asked: Asked) -> dict[str, Any]:
    plan = runs[0].plan
    return {
        "title": plan["arms_file"]["name"],
        "manifest": plan["manifest"]["name"],
        "runs": [{"name": run.name, "plan_sha256": run.sha256} for run in runs],
        "declared": judged.plan.declared,
        "changed": list(judged.plan.changed),
        "alpha": judged.plan.alpha,
        "margins": dict(judged.plan.margins),
        "nll_margins": [asdict(margin) for margin in judged.plan.nll_margins],
        "margins_from": "command line" if asked.margins else "plan",
        "gate_concurrency": list(judged.plan.gate_concurrency),
        "concurrency": plan["concurrency"],
        "sequence": plan["sequence"],
        "replays": {"planned": plan["replays"], "found": len(slots(runs))},
        "control": plan["control"],
        "aa": judged.plan.aa,
        "arms": list(arm_names(plan)),
        "factors": plan["factors"],
        "scorers": dict(runs[0].scorers),
        "suites": {
            name: {"suite": s["suite"], "modes": s["modes"], "cases": s["cases"]}
            for name, s in plan["suites"].items()
        },
    }


def _arm(arm: ArmVerdict) -> dict[str, Any]:
    gates: list[CellVerdict | NllCellVerdict] = [*arm.cells, *arm.nll_cells]
    gates = [cell for cell in gates if cell.gate]
    rows = list(_needed(gates))
    suites = [row for row in rows if row["suite"] != "nll"]
    return {
        "name": arm.arm,
        "levels": dict(arm.levels),
        "verdict": arm.verdict,
        "underlying": arm.underlying,
        "reason": arm.reason,
        "notes": list(arm.notes),
        "p": arm.p,
        "p_adjusted": arm.p_adjusted,
        "cases_needed": rows,
        "cases_needed_if_equal": _most(row["if_equal"] for row in rows),
        "cases_needed_as_observed": _most(row["as_observed"] for row in suites),
        "gate_cells": len(gates),
        "gate_cells_passed": sum(c.underlying == "admitted" for c in gates),
    }


def _needed(gates: Sequence[CellVerdict | NllCellVerdict]) -> Iterator[dict[str, Any]]:
    """Yield the cases that each suite and mode would need at a level, the largest of its levels.

    Gates that lack something else than cases (an A/A launch that fails) are not among them.
    """
    cells: dict[tuple[str, str], list[CellVerdict]] = {}
    nll: dict[str, list[int | None]] = {}
    for gate in gates:
        if gate.underlying != "undecided" or gate.aa_failed:
            continue
        if isinstance(gate, NllCellVerdict):
            nll.setdefault(gate.mode, []).append(gate.cases_needed)
        elif gate.cases_needed_if_equal is not None:
            cells.setdefault((gate.suite, gate.mode), []).append(gate)
    for (suite, mode), found in cells.items():
        yield {
            "suite": suite,
            "mode": mode,
            "if_equal": _most(cell.cases_needed_if_equal for cell in found),
            "as_observed": _most(cell.cases_needed_as_observed for cell in found),
            "none_differed": not any(cell.table.wins + cell.table.losses for cell in found),
        }
    for mode, numbers in nll.items():
        yield {
            "suite": "nll",
            "mode": mode,
            "if_equal": _most(numbers),
            "as_observed": None,
            "none_differed": False,
        }


def _most(needed: Iterable[int | None]) -> int | None:
    """Return the largest; None where one is None (no number would do, or none is known)."""
    numbers = list(needed)
    known = [n for n in numbers if n is not None]
    return max(known, default=None) if len(known) == len(numbers) else None
