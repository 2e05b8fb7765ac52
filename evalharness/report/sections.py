"""Sections of the report that are read off the runs' cells, one row a cell."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from evalharness.noninferiority import Judgement
from evalharness.pairing import (
    arm_names,
    find_cell,
    nll_label,
    slots,
    speed_modes,
    speed_repeats,
    suite_modes,
)
from evalharness.report.texts import divergence, texts_of
from evalharness.report.tokens import delta_rows, kl_rows, perplexity_rows, token_text
from evalharness.runs import Run
from evalharness.verdicts.types import CORRECT, UNOBSERVED, WRONG, NllTable, TokenExtreme

Where = tuple[str, str, int]


def count_rows(judged: Judgement) -> Iterator[dict[str, Any]]:
    """Yield correct, wrong and unobserved per arm, suite and level, over all replays."""
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


def never_run_rows(run: Run) -> Iterator[dict[str, Any]]:
    """Planned cells of which the run has no record at all."""
    plan = run.plan
    replays, repeats = range(plan["replays"]), range(speed_repeats(plan))
    judged = (*suite_modes(plan, nll=False), *suite_modes(plan, nll=True))
    asked = [(*pair, replays) for pair in judged] + [(*p, repeats) for p in speed_modes(plan)]
    found: dict[tuple[str, str, str, int, int], set[int]] = {}
    for key in run.cells:
        place = (key.arm, key.suite, key.mode, key.concurrency, key.replicate)
        found.setdefault(place, set()).add(key.shard.number)
    for arm, (suite, mode, rounds) in product(arm_names(plan), asked):
        for concurrency, replicate in product(plan["concurrency"], rounds):
            where = (arm, suite, mode, concurrency)
            for what, rows in _unrecorded(plan, where, found.get((*where, replicate), set())):
                yield {
                    "arm": arm,
                    "suite": suite,
                    "mode": mode,
                    "concurrency": concurrency,
                    "replicate": replicate if len(rounds) > 1 else None,
                    "launch": None,
                    "state": "missing",
                    "reason": f"the run has no record of {what}",
                    "rows": 0,
                    "expected_rows": rows,
                    "file": None,
                    "became": "never asked: its cases are unobserved",
                }


def _unrecorded(
    plan: Mapping[str, Any], where: tuple[str, str, str, int], found: Collection[int]
) -> Iterator[tuple[str, int]]:
    """Yield what of a cell has no record, and its cases: the cell itself, or shards of it."""
    suite, concurrency = where[1], where[3]
    if not found:
        yield "this cell", planned_rows(plan, suite, concurrency)
        return
    sizes = plan.get("shards", {}).get("cases", {}).get(suite, [0])
    for number, size in enumerate(sizes, start=1):
        if number not in found:
            yield f"shard {number} of {len(sizes)}", size


def planned_rows(plan: Mapping[str, Any], suite: str, concurrency: int) -> int:
    """Return how many cases a whole cell asks: all, or its waves of C."""
    facts = plan["suites"][suite]
    waves = facts.get("waves")
    cases = int(facts["cases"])
    return cases if waves is None else min(cases, int(waves) * concurrency)


def nll_with_places(
    plan: Mapping[str, Any], tables: Sequence[NllTable]
) -> list[tuple[Where, NllTable]]:
    """Return each NLL table with the (suite entry, mode, concurrency) it was read from."""
    places = {nll_label(s, m): (s, m) for s, m in suite_modes(plan, nll=True)}
    return [((*places[table.mode], table.concurrency), table) for table in tables]


def nll_section(
    runs: Sequence[Run], judged: Judgement, nll: Sequence[tuple[Where, NllTable]]
) -> dict[str, Any]:
    """Return NLL verdicts with token texts, perplexities, divergences and the deltas' tails."""
    places = {(nll_label(w[0], w[1]), w[2]): w for w, _ in nll}
    cells = []
    for arm in judged.verdict.arms:
        for cell in arm.nll_cells:
            row = asdict(cell)
            where = places[cell.mode, cell.concurrency]
            for name, side in (("summary", cell.arm), ("aa", judged.plan.aa)):
                if row[name] and row[name]["largest"] and side:
                    extreme = getattr(cell, name).largest
                    row[name]["largest"]["text"] = _text(runs, where, arm=side, extreme=extreme)
            cells.append(row)
    return {
        "cells": cells,
        "perplexity": [row for where, table in nll for row in perplexity_rows(where, table)],
        "kl": [row for where, table in nll for row in kl_rows(runs, where, table)],
        "deltas": [row for where, table in nll for row in delta_rows(where, table)],
    }


def _text(runs: Sequence[Run], where: Where, *, arm: str, extreme: TokenExtreme) -> str | None:
    for slot in slots(runs):
        text = token_text(
            runs,
            slot,
            where=where,
            arm=arm,
            case_id=extreme.case_id,
            position=extreme.position,
        )
        if text is not None:
            return text
    return None


def first_difference_rows(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Yield where each arm's texts part from the control's, one row a cell and replay."""
    plan = runs[0].plan
    for suite, mode in suite_modes(plan, nll=False):
        for concurrency in plan["concurrency"]:
            for slot in slots(runs):
                where = (suite, mode, concurrency)
                control = find_cell(runs, slot, where=where, arm=plan["control"])
                texts = dict(texts_of(control)) if control else {}
                for arm in arm_names(plan)[1:]:
                    cell = find_cell(runs, slot, where=where, arm=arm)
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
