"""The speed suite's part of the report: figures of every cell, contrasts, one sentence an arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from evalharness.noninferiority import Judgement
from evalharness.pairing import arm_names, find_cell, speed_modes, speed_repeats, speed_slots
from evalharness.report.answers import responses
from evalharness.runs import Run
from evalharness.speed.contrasts import (
    ALPHA,
    MIN_REPEATS,
    RESAMPLES,
    Contrast,
    Family,
    Pair,
    after_aa,
    compare,
)
from evalharness.speed.figures import FIGURES, TOKENS_PER_S, CellFigures, cell_figures
from evalharness.speed.figures import without_figures as _without
from evalharness.speed.together import arm_speed
from evalharness.types import CellKey

CLIENT = "the client, not the server, was the limit"
Where = tuple[str, str, int]
_Figures = dict[tuple[int, CellKey], CellFigures]


def speed_section(runs: Sequence[Run], judged: Judgement) -> dict[str, Any] | None:
    """Return the section (formats/report.schema.json), None where no speed suite was planned."""
    plan = runs[0].plan
    modes = speed_modes(plan)
    if not modes:
        return None
    figures = _figures(runs)
    family = _family(plan, judged)
    places = [(entry, mode, c) for entry, mode in modes for c in plan["concurrency"]]
    found = {(where, arm): one for where in places for arm, one in _at(runs, where, figures,
             judged=judged, family=family)}  # fmt: skip
    return {
        "repeats": {"planned": family.planned, "needed": MIN_REPEATS},
        "confidence": family.confidence,
        "familywise": 1 - ALPHA,
        "resamples": RESAMPLES,
        "arms": list(_arms(judged, found, modes=modes)),
        "contrasts": [
            {**_where(where), "arm": arm, **asdict(one)}
            for (where, arm), by_figure in found.items()
            for one in by_figure.values()
        ],
        "cells": list(_cell_rows(runs, figures)),
    }


def _family(plan: Mapping[str, Any], judged: Judgement) -> Family:
    return Family(
        planned=speed_repeats(plan),
        comparisons=len(judged.plan.candidates) * len(plan["concurrency"]),
        seed=plan["seed"],
    )


def _figures(runs: Sequence[Run]) -> _Figures:
    """Return the figures of every cell of the speed suite, each response file read once."""
    entries = {entry for entry, _ in speed_modes(runs[0].plan)}
    found: _Figures = {}
    for index, run in enumerate(runs):
        for key, cell in run.cells.items():
            if key.suite not in entries:
                continue
            if cell.state == "complete":
                found[index, key] = cell_figures(list(responses(cell)), key.concurrency)
            else:
                found[index, key] = _without(f"the cell is {cell.state}: {cell.reason}")
    return found


def _at(
    runs: Sequence[Run], where: Where, figures: _Figures, *, judged: Judgement, family: Family
) -> Iterator[tuple[str, dict[str, Contrast]]]:
    """Yield (arm, contrast by figure) at one place, the A/A launch first."""
    noise: dict[str, Contrast] = {}
    for arm in arm_names(runs[0].plan)[1:]:
        pairs = list(_pairs(runs, where, arm, figures=figures))
        found = {figure: compare(pairs, figure, family) for figure in FIGURES}
        if arm == judged.plan.aa:
            noise = found
        else:
            found = after_aa(found, noise)
        yield arm, found


def _pairs(
    runs: Sequence[Run], where: Where, arm: str, *, figures: _Figures
) -> Iterator[Pair]:  # fmt: skip
    never = _without("the cell was never run")
    for slot in speed_slots(runs):
        cells = [
            find_cell(runs, slot, where=where, arm=name)
            for name in (runs[slot.run].plan["control"], arm)
        ]
        launches = [cell.launch if cell else 0 for cell in cells]
        sides = [figures[slot.run, cell.key] if cell else never for cell in cells]
        name = f"run {slot.run + 1} repeat" if len(runs) > 1 else "repeat"
        yield Pair(
            place=f"{name} {slot.replicate}",
            unit=(slot.run, launches[0], launches[1]),
            control=sides[0],
            arm=sides[1],
            doubt=CLIENT if any(cell and cell.record["client_bound"] for cell in cells) else "",
        )


def _arms(
    judged: Judgement,
    found: Mapping[tuple[Where, str], Mapping[str, Contrast]],
    *,
    modes: Sequence[tuple[str, str]],
) -> Iterator[dict[str, Any]]:
    """Yield one row an arm and speed entry: its claims in tokens per second beside its verdict."""
    for arm in judged.verdict.arms:
        for entry, mode in modes:
            levels = {
                where[2]: by_figure[TOKENS_PER_S]
                for (where, name), by_figure in found.items()
                if name == arm.arm and where[:2] == (entry, mode)
            }
            yield {
                "arm": arm.arm,
                "suite": entry,
                "mode": mode,
                "quality": arm.verdict,
                **asdict(arm_speed(levels, arm.verdict)),
            }


def _cell_rows(runs: Sequence[Run], figures: _Figures) -> Iterator[dict[str, Any]]:
    order = {arm: place for place, arm in enumerate(arm_names(runs[0].plan))}
    rows = sorted(
        figures.items(),
        key=lambda item: (
            item[0][1].suite, item[0][1].mode, item[0][1].concurrency,
            order[item[0][1].arm], item[0][0], item[0][1].replicate,
        ),
    )  # fmt: skip
    for (index, key), cell in rows:
        yield {
            "arm": key.arm,
            **_where((key.suite, key.mode, key.concurrency)),
            "run": index,
            "replicate": key.replicate,
            "launch": runs[index].cells[key].launch,
            "requests": cell.requests,
            "warmup": cell.warmup,
            "pure_tokens": cell.pure_tokens,
            **{figure: cell.values.get(figure) for figure in FIGURES},
            "missing": dict(cell.missing),
        }


def _where(where: Where) -> dict[str, Any]:
    suite, mode, concurrency = where
    return {"suite": suite, "mode": mode, "concurrency": concurrency}
