"""Where another stored reading of a suite gives another verdict than the declared one, by rule.

The verdicts of a report rest on the declared scorers alone; this section lets a reader follow
each case on which another scorer version disagrees from the answer to the rule that decides it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalharness.errors import StoreError
from evalharness.pairing import EXCLUDED
from evalharness.report.answers import answer_text, cut_answer, responses
from evalharness.runs import NLL_SUITE, Run, StoredCell
from evalharness.stored_rows import CaseScore, read_scores, verify_cell

# Rows that carry the answer; later ones name the file that holds it.
MAX_ANSWERS = 200
ANSWER_CHARS = 1_000


@dataclass(frozen=True, slots=True, order=True)
class _Case:
    """One disagreement: the same in every place where it was seen."""

    suite: str
    mode: str
    declared: str
    scorer: str
    rule: str
    case_id: str
    before: str
    after: str


def reading_rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the cases on which a stored scorer version differs from the declared one.

    One row a case, pair of verdicts and rule, with the places (arm, C, run, replay) where it was
    seen. Cases that the other reading leaves out are listed too. Nothing is scored here: a
    version whose scores are not stored has no rows (`evalharness rescore RUN` writes them).
    """
    found: dict[_Case, list[tuple[int, StoredCell]]] = {}
    for number, run in enumerate(runs):
        for cell in run.cells.values():
            for case in _disagreements(run, cell):
                found.setdefault(case, []).append((number, cell))
    rows = []
    for number, case in enumerate(sorted(found)):
        first_run, first = found[case][0]
        answer = _answer(first, case.case_id) if number < MAX_ANSWERS else None
        rows.append(
            {
                "suite": case.suite,
                "mode": case.mode,
                "declared": case.declared,
                "scorer": case.scorer,
                "rule": case.rule,
                "case_id": case.case_id,
                "declared_verdict": case.before,
                "scorer_verdict": case.after,
                "places": [_place(place, cell) for place, cell in found[case]],
                "answer": answer,
                "file": first.responses.relative_to(runs[first_run].path).as_posix(),
            }
        )
    return rows


def other_scorers(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the scorer versions that have scores here beside the declared ones, by suite."""
    found = {
        (cell.key.suite, scorer)
        for run in runs
        for cell in run.cells.values()
        if cell.state == "complete" and run.plan["suites"][cell.key.suite]["suite"] != NLL_SUITE
        for scorer, _ in _other_readings(run, cell)
    }
    return [{"suite": suite, "scorer": scorer} for suite, scorer in sorted(found)]


def _place(run: int, cell: StoredCell) -> dict[str, Any]:
    key = cell.key
    return {
        "arm": key.arm,
        "concurrency": key.concurrency,
        "run": run,
        "replicate": key.replicate,
    }


def _disagreements(run: Run, cell: StoredCell) -> Iterator[_Case]:
    if cell.state != "complete" or run.plan["suites"][cell.key.suite]["suite"] == NLL_SUITE:
        return
    others = list(_other_readings(run, cell))
    checks = verify_cell(cell.record, cell.responses)[2] if others else {}
    for scorer, file in others:
        for case_id, other in _read(file, cell, scorer=scorer, checks=checks).items():
            own = cell.scores.get(case_id)
            if own is None or not _differs(own, other):
                continue
            yield _Case(
                suite=cell.key.suite,
                mode=cell.key.mode,
                declared=cell.scorer,
                scorer=scorer,
                rule=other.rule or own.rule,
                case_id=case_id,
                before=f"{own.outcome} ({own.reason})",
                after=f"{other.outcome} ({other.reason})",
            )


def _other_readings(run: Run, cell: StoredCell) -> Iterator[tuple[str, Path]]:
    """Yield the stored scorer versions of a cell beside the declared one, and their files."""
    relative = cell.responses.relative_to(run.path / "responses")
    for folder in sorted((run.path / "scores").glob(f"{cell.key.suite}.*")):
        name, _, version = folder.name.removeprefix(f"{cell.key.suite}.").rpartition("-")
        scorer = f"{name}/{version}"
        if scorer != cell.scorer and (folder / relative).is_file():
            yield scorer, folder / relative


def _read(
    file: Path, cell: StoredCell, *, scorer: str, checks: Mapping[str, str]
) -> Mapping[str, CaseScore]:
    """Return the other reading; one that cannot be read says nothing of the run's verdicts."""
    try:
        return read_scores(file, checks, scorer)[0]
    except StoreError as error:
        broken = CaseScore("unobserved", str(error))
        return dict.fromkeys(cell.scores, broken)


def _differs(own: CaseScore, other: CaseScore) -> bool:
    left_out = [score.reason.startswith(EXCLUDED) for score in (own, other)]
    return own.outcome != other.outcome or left_out[0] != left_out[1]


def _answer(cell: StoredCell, case_id: str) -> dict[str, Any] | None:
    for response in responses(cell, {case_id}):
        return cut_answer(answer_text(response), ANSWER_CHARS)
    return None
