"""The report as one JSON document: everything the pages show, and nothing they add."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from evalharness import __version__
from evalharness.noninferiority import Asked, Judgement
from evalharness.pairing import arm_names, find_cell, nll_label, slots, suite_modes
from evalharness.report.facts import load_rows, provenance, route_rows, speed_rows, stopped_rows
from evalharness.report.flips import flip_rows, unobserved_rows
from evalharness.report.limits import cannot_say
from evalharness.report.texts import divergence, texts_of
from evalharness.report.tokens import delta_rows, kl_rows, perplexity_rows, token_text
from evalharness.runs import Run
from evalharness.verdicts.types import CORRECT, UNOBSERVED, WRONG, NllTable, TokenExtreme

FORMAT = "evalharness/report/1"
VERDICTS = ("harm shown", "incomplete", "undecided", "exploratory", "admitted")
Where = tuple[str, str, int]


def build_document(runs: Sequence[Run], judged: Judgement, asked: Asked) -> dict[str, Any]:
    """Return the report of the runs (formats/report.schema.json). Deterministic: no clock."""
    nll = _nll_with_places(runs[0].plan, judged.nll)
    load = [row for run in runs for row in load_rows(run)]
    verdict = judged.verdict
    document = {
        "format": FORMAT,
        "harness_version": __version__,
        "headline": headline(judged),
        "exploratory": list(verdict.exploratory),
        "design": _design(runs, judged, asked),
        "arms": [_arm(arm) for arm in verdict.arms],
        "counts": list(_counts(judged)),
        "cells": [asdict(cell) for arm in verdict.arms for cell in arm.cells],
        "aa": [asdict(check) for check in verdict.aa],
        "flips": flip_rows(runs, judged.tables),
        "unobserved": unobserved_rows(runs, judged.tables, nll),
        "stopped": [row for run in runs for row in (*stopped_rows(run), *_never_run(run))],
        "pooled": [asdict(row) for row in verdict.pooled],
        "factorial": [asdict(table) for table in verdict.effects],
        "nll": _nll(runs, judged, nll),
        "first_difference": list(_first_difference(runs)),
        "concurrency": load,
        "route_hits": [row for run in runs for row in route_rows(run)],
        "provenance": provenance(runs),
        "cannot_say": cannot_say(runs, judged, load),
        "speed": [row for run in runs for row in speed_rows(run)] or None,
    }
    cleaned = clean(document)
    assert isinstance(cleaned, dict)
    return cleaned


def clean(value: Any) -> Any:
    """Return plain JSON data: NaN and infinities as null, tuples as lists, numpy as numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        return clean(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): clean(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


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
        "runs": [{"name": run.path.name, "plan_sha256": run.sha256} for run in runs],
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


def _arm(arm: Any) -> dict[str, Any]:
    deciding = [c for c in (*arm.cells, *arm.nll_cells) if c.gate and c.underlying != "admitted"]
    needed = [getattr(cell, "cases_needed_if_equal", None) for cell in deciding]
    return {
        "name": arm.arm,
        "levels": dict(arm.levels),
        "verdict": arm.verdict,
        "underlying": arm.underlying,
        "reason": arm.reason,
        "notes": list(arm.notes),
        "p": arm.p,
        "p_adjusted": arm.p_adjusted,
        "cases_needed": max((n for n in needed if n is not None), default=None),
        "gate_cells": sum(c.gate for c in (*arm.cells, *arm.nll_cells)),
        "gate_cells_passed": sum(
            c.gate and c.underlying == "admitted" for c in (*arm.cells, *arm.nll_cells)
        ),
    }


def _counts(judged: Judgement) -> Iterator[dict[str, Any]]:
    for table in judged.tables:
        for a, arm in enumerate(table.arms):
            outcomes = table.outcomes[a]
            yield {
                "arm": arm,
                "suite": table.suite,
                "mode": table.mode,
                "concurrency": table.concurrency,
                "cases": len(table.case_ids),
                "replays": table.replays,
                "correct": int((outcomes == CORRECT).sum()),
                "wrong": int((outcomes == WRONG).sum()),
                "unobserved": int((outcomes == UNOBSERVED).sum()),
            }


def _never_run(run: Run) -> Iterator[dict[str, Any]]:
    """Planned cells of which the run has no record at all."""
    plan = run.plan
    for arm in arm_names(plan):
        for suite, mode in (*suite_modes(plan, nll=False), *suite_modes(plan, nll=True)):
            for concurrency in plan["concurrency"]:
                keys = [k for k in run.cells if (k.arm, k.suite, k.mode) == (arm, suite, mode)]
                if not any(k.concurrency == concurrency for k in keys):
                    yield {
                        "arm": arm,
                        "suite": suite,
                        "mode": mode,
                        "concurrency": concurrency,
                        "replicate": None,
                        "launch": None,
                        "state": "missing",
                        "reason": "the run has no record of this cell",
                        "rows": 0,
                        "expected_rows": plan["suites"][suite]["cases"],
                        "file": None,
                    }


def _nll_with_places(
    plan: Mapping[str, Any], tables: Sequence[NllTable]
) -> list[tuple[Where, NllTable]]:
    places = {nll_label(s, m): (s, m) for s, m in suite_modes(plan, nll=True)}
    return [((*places[table.mode], table.concurrency), table) for table in tables]


def _nll(
    runs: Sequence[Run], judged: Judgement, nll: Sequence[tuple[Where, NllTable]]
) -> dict[str, Any]:
    places = {(where[1], where[2]): where for where, _ in nll}
    places |= {(nll_label(w[0], w[1]), w[2]): w for w, _ in nll}
    cells = []
    for arm in judged.verdict.arms:
        for cell in arm.nll_cells:
            row = asdict(cell)
            where = places[cell.mode, cell.concurrency]
            for name, side in (("summary", cell.arm), ("aa", judged.plan.aa)):
                if row[name] and row[name]["largest"] and side:
                    extreme = getattr(cell, name).largest
                    row[name]["largest"]["text"] = _text(runs, where, side, extreme)
            cells.append(row)
    return {
        "cells": cells,
        "perplexity": [row for where, table in nll for row in perplexity_rows(where, table)],
        "kl": [row for where, table in nll for row in kl_rows(runs, where, table)],
        "deltas": [row for where, table in nll for row in delta_rows(where, table)],
    }


def _text(runs: Sequence[Run], where: Where, arm: str, extreme: TokenExtreme) -> str | None:
    for slot in slots(runs):
        text = token_text(
            runs, slot, where, arm, case_id=extreme.case_id, position=extreme.position
        )
        if text is not None:
            return text
    return None


def _first_difference(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    plan = runs[0].plan
    for suite, mode in suite_modes(plan, nll=False):
        for concurrency in plan["concurrency"]:
            for slot in slots(runs):
                where = (suite, mode, concurrency)
                control = find_cell(runs, slot, where, plan["control"])
                texts = dict(texts_of(control)) if control else {}
                for arm in arm_names(plan)[1:]:
                    cell = find_cell(runs, slot, where, arm)
                    if cell is not None and texts:
                        yield {
                            "arm": arm,
                            "suite": suite,
                            "mode": mode,
                            "concurrency": concurrency,
                            "run": slot.run,
                            "replicate": slot.replicate,
                            **divergence(texts, texts_of(cell)),
                        }
