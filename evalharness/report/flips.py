"""Flips and unobserved cases by name, each flip with both raw answers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class _Spot:
    """One table's cells in one replay."""

    runs: Sequence[Run]
    slot: Slot
    table: OutcomeTable

    @property
    def where(self) -> Where:
        return self.table.suite, self.table.mode, self.table.concurrency

    def cell(self, arm: str) -> StoredCell | None:
        return find_cell(self.runs, self.slot, where=self.where, arm=arm)

    def file(self, arm: str, case_id: str) -> str | None:
        cell = self.cell(arm)
        root = self.runs[self.slot.run].path
        return cell.part_with(case_id).responses.relative_to(root).as_posix() if cell else None


def flip_rows(runs: Sequence[Run], tables: Sequence[OutcomeTable]) -> list[dict[str, Any]]:
    """Every case that control and an arm (the A/A launch too) answered with different outcome.

    Both cases are observed. Answers are attached up to a total; later flips carry null.
    """
    rows: list[dict[str, Any]] = []
    budget = TOTAL_CHARS
    for table in tables:
        for r, slot in enumerate(slots(runs)):
            spot = _Spot(runs, slot, table)
            found = [
                (arm, table.case_ids[i], kind)
                for arm in table.arms[1:]
                for i, kind in _discordant(table, arm, r)
            ]
            answers = _answers(spot, found) if budget > 0 else {}
            for arm, case_id, kind in found:
                row = {**_place(spot.where, arm, slot), "case_id": case_id, "kind": kind}
                row |= _shown(spot, arm, case_id, answers=answers)
                budget -= _size(row)
                rows.append(row)
    return rows


def _discordant(table: OutcomeTable, arm: str, r: int) -> Iterator[tuple[int, str]]:
    control, candidate = table.outcomes[0, r], table.of(arm)[r]
    for i, (one, other) in enumerate(zip(control, candidate, strict=True)):
        if (one, other) == (CORRECT, WRONG):
            yield i, "loss"
        elif (one, other) == (WRONG, CORRECT):
            yield i, "win"


def _answers(spot: _Spot, found: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str], Response]:
    """Return the responses of both sides of every flip, each file read once."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for arm, case_id, _ in found:
        wanted[arm].add(case_id)
        wanted[spot.table.arms[0]].add(case_id)
    answers: dict[tuple[str, str], Response] = {}
    for arm, ids in wanted.items():
        cell = spot.cell(arm)
        for response in responses(cell, ids) if cell else ():
            answers[arm, response.case_id] = response
    return answers


def _shown(
    spot: _Spot, arm: str, case_id: str, *, answers: Mapping[tuple[str, str], Response]
) -> dict[str, Any]:
    """Return prompt, both answers, reasons and files of a flip; null where it is too late."""
    control = spot.table.arms[0]
    asked = answers.get((control, case_id))
    row: dict[str, Any] = {"prompt": cut_answer(_prompt(asked), PROMPT_CHARS) if asked else None}
    for side, name in (("control", control), ("arm", arm)):
        cell, response = spot.cell(name), answers.get((name, case_id))
        row[f"{side}_answer"] = cut_answer(answer_text(response)) if response else None
        row[f"{side}_reason"] = cell.scores[case_id].reason if cell else ""
        row[f"{side}_file"] = spot.file(name, case_id)
    return row


def _size(row: Mapping[str, Any]) -> int:
    texts = (row[name] for name in ("prompt", "control_answer", "arm_answer"))
    return sum(len(text["text"]) for text in texts if text)


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
            cell = find_cell(runs, slot, where=where, arm=arm)
            score = cell.scores.get(case_id) if cell else None
            reason = score.reason if score else _absence(cell)
            groups[arm, where, slot, reason].append(case_id)
    for where, rows in nll:
        for arm, slot, i in _missing(runs, rows.arms, ~rows.observed):
            case_id = rows.case_ids[i]
            cell = find_cell(runs, slot, where=where, arm=arm)
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
