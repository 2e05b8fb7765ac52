"""Flips and unobserved cases by name, each flip with both raw answers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from evalharness.pairing import EXCLUDED, Slot, find_cell, nll_reason, slots
from evalharness.report.answers import TOTAL_CHARS, answer_text, cut_answer, responses
from evalharness.runs import Run, StoredCell
from evalharness.types import Response
from evalharness.verdicts.types import CORRECT, UNOBSERVED, WRONG, NllTable, OutcomeTable

PROMPT_CHARS = 2_000
NO_CELL = "the cell was never run"
NO_ROW = "no row in the cell"
Where = tuple[str, str, int]


def flip_rows(runs: Sequence[Run], tables: Sequence[OutcomeTable]) -> list[dict[str, Any]]:
    """Every case that control and an arm (the A/A launch too) answered with different outcome.

    Both cases are observed. Answers are attached up to a total; later flips carry null.
    """
    rows: list[dict[str, Any]] = []
    budget = TOTAL_CHARS
    for table in tables:
        where = (table.suite, table.mode, table.concurrency)
        for r, slot in enumerate(slots(runs)):
            found = [
                {"arm": arm, "index": i, "kind": kind}
                for arm in table.arms[1:]
                for i, kind in _discordant(table, arm, r)
            ]
            answers = _answers(runs, slot, where, table, found) if budget > 0 else {}
            for flip in found:
                row, used = _flip(runs, slot, where, table, flip, answers)
                budget -= used
                rows.append(row)
    return rows


def _discordant(table: OutcomeTable, arm: str, r: int) -> Iterator[tuple[int, str]]:
    control, candidate = table.outcomes[0, r], table.of(arm)[r]
    for i, (one, other) in enumerate(zip(control, candidate, strict=True)):
        if (one, other) == (CORRECT, WRONG):
            yield i, "loss"
        elif (one, other) == (WRONG, CORRECT):
            yield i, "win"


def _answers(
    runs: Sequence[Run], slot: Slot, where: Where, table: OutcomeTable, found: list[dict[str, Any]]
) -> dict[tuple[str, str], Response]:
    wanted: dict[str, set[str]] = defaultdict(set)
    for flip in found:
        case_id = table.case_ids[flip["index"]]
        wanted[flip["arm"]].add(case_id)
        wanted[table.arms[0]].add(case_id)
    answers: dict[tuple[str, str], Response] = {}
    for arm, ids in wanted.items():
        cell = find_cell(runs, slot, where, arm)
        for response in responses(cell, ids) if cell else ():
            answers[arm, response.case_id] = response
    return answers


def _flip(
    runs: Sequence[Run],
    slot: Slot,
    where: Where,
    table: OutcomeTable,
    flip: dict[str, Any],
    answers: dict[tuple[str, str], Response],
) -> tuple[dict[str, Any], int]:
    arm, case_id = flip["arm"], table.case_ids[flip["index"]]
    row: dict[str, Any] = {
        **_place(where, arm, slot),
        "case_id": case_id,
        "kind": flip["kind"],
        "prompt": None,
    }
    used = 0
    for side, name in (("control", table.arms[0]), ("arm", arm)):
        cell, response = find_cell(runs, slot, where, name), answers.get((name, case_id))
        shown = cut_answer(answer_text(response)) if response else None
        row[f"{side}_answer"] = shown
        row[f"{side}_reason"] = cell.scores[case_id].reason if cell else ""
        row[f"{side}_file"] = _file(runs, slot, cell)
        used += len(shown["text"]) if shown else 0
        if response and name == table.arms[0]:
            prompt = cut_answer(_prompt(response), PROMPT_CHARS)
            row["prompt"] = prompt
            used += len(prompt["text"])
    return row, used


def _place(where: Where, arm: str, slot: Slot) -> dict[str, Any]:
    suite, mode, concurrency = where
    return {
        "arm": arm,
        "suite": suite,
        "mode": mode,
        "concurrency": concurrency,
        "run": slot.run,
        "replicate": slot.replicate,
    }


def _file(runs: Sequence[Run], slot: Slot, cell: StoredCell | None) -> str | None:
    return cell.responses.relative_to(runs[slot.run].path).as_posix() if cell else None


def _prompt(response: Response) -> str:
    """Return the last user message of the request, or its whole body where there is none."""
    try:
        messages = json.loads(response.request_body)["messages"]
        content = [m["content"] for m in messages if m["role"] == "user"][-1]
    except (ValueError, KeyError, TypeError, IndexError):
        return response.request_body
    return content if isinstance(content, str) else json.dumps(content)


def unobserved_rows(
    runs: Sequence[Run], tables: Sequence[OutcomeTable], nll: Sequence[tuple[Where, NllTable]]
) -> list[dict[str, Any]]:
    """Every unobserved case, named, grouped by arm, cell and reason."""
    groups: dict[tuple[str, Where, Slot, str], list[str]] = defaultdict(list)
    for table in tables:
        where = (table.suite, table.mode, table.concurrency)
        for arm, slot, i in _missing(runs, table.arms, table.outcomes == UNOBSERVED):
            case_id = table.case_ids[i]
            cell = find_cell(runs, slot, where, arm)
            score = cell.scores.get(case_id) if cell else None
            reason = score.reason if score else _absence(cell)
            groups[arm, where, slot, reason].append(case_id)
    for where, rows in nll:
        for arm, slot, i in _missing(runs, rows.arms, ~rows.observed):
            case_id = rows.case_ids[i]
            cell = find_cell(runs, slot, where, arm)
            row = cell.nll.get(case_id) if cell else None
            start = int(rows.sizes[:i].sum())
            forced = tuple(int(t) for t in rows.token_ids[start : start + int(rows.sizes[i])])
            reason = nll_reason(row, forced) if row else _absence(cell)
            groups[arm, where, slot, reason].append(case_id)
    return [
        {**_place(where, arm, slot), "reason": reason, "case_ids": ids}
        for (arm, where, slot, reason), ids in groups.items()
    ]


def excluded_rows(runs: Sequence[Run], tables: Sequence[OutcomeTable]) -> list[dict[str, Any]]:
    """Cases that a scorer left out of the denominator in every arm, with its reason."""
    groups: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for table in tables:
        counted = set(table.case_ids)
        for run in runs:
            for key, cell in run.cells.items():
                if (key.suite, key.mode) != (table.suite, table.mode):
                    continue
                for case_id, score in cell.scores.items():
                    if case_id not in counted and score.reason.startswith(EXCLUDED):
                        groups[table.suite, table.mode, score.reason].add(case_id)
    return [
        {"suite": suite, "mode": mode, "reason": reason, "case_ids": sorted(ids)}
        for (suite, mode, reason), ids in groups.items()
    ]


def _missing(
    runs: Sequence[Run], arms: Sequence[str], missing: Any
) -> Iterator[tuple[str, Slot, int]]:
    for a, arm in enumerate(arms):
        for r, slot in enumerate(slots(runs)):
            yield from ((arm, slot, int(i)) for i in missing[a, r].nonzero()[0])


def _absence(cell: StoredCell | None) -> str:
    if cell is None:
        return NO_CELL
    return NO_ROW if cell.state == "complete" else f"cell {cell.state}: {cell.reason}"
