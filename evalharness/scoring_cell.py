"""Score the stored responses of one cell with one or more scorers, in one streaming pass.

A response that cannot be scored is reported with file and line, and stops nothing else; a file
that is not what its cell record says gets no scores. A score file that is already there is
compared, never overwritten.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from evalharness.manifest import frozen_cases, frozen_manifest
from evalharness.registry import suite_named
from evalharness.scoring_lines import damage, scorable
from evalharness.store import make_directory
from evalharness.store.lines import StoredResponse
from evalharness.store.rundir import disk_error
from evalharness.suite import Suite
from evalharness.types import Case, NllRow, Score, canonical_json

EXCLUDED_PREFIX = "excluded:"
# What a score says of its response: here a version of a scorer can make no difference.
SAME = ("case_id", "replicate", "scorer", "response_digest")
_quote = json.JSONEncoder(ensure_ascii=True).encode


@dataclass(frozen=True, slots=True)
class CellJob:
    """One response file to score. `outputs` maps scorer version -> score file.

    `responses_sha256` is what the cell's record says of the file.
    """

    responses: Path
    responses_sha256: str | None
    entry: str
    suite: str
    concurrency: int
    baseline: str
    outputs: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class Change:
    """One verdict on which a scorer differs from the declared one."""

    place: str
    case_id: str
    before: str
    after: str
    rule: str

    def __str__(self) -> str:
        why = f"  [{self.rule}]" if self.rule else ""
        return f"{self.place} {self.case_id}: {self.before} -> {self.after}{why}"


@dataclass(slots=True)
class CellResult:
    """What became of one cell: rows scored, files written, kept and differing, and faults.

    differing: file, first line that differs, and how.
    """

    rows: int = 0
    written: list[Path] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    changes: int = 0


OnChange = Callable[[Change], None]


def score_cell(job: CellJob, cases: Mapping[str, Case], on_change: OnChange) -> CellResult:
    """Score one cell. `on_change` gets each verdict that differs from the baseline scorer's.

    Raises StoreError where scores cannot be written, DiskFullError where the disk is full.
    """
    suite, result = suite_named(job.suite), CellResult()
    result.faults += damage(job.responses, job.responses_sha256, cases)
    if result.faults:
        return result
    try:
        with contextlib.ExitStack() as stack:
            outputs = {
                scorer: stack.enter_context(_Output(path, result))
                for scorer, path in job.outputs.items()
            }
            stored = scorable(job.responses, cases, result.faults)
            if suite.kind == "nll":
                _score_tokens(
                    suite, job, cases, stored=list(stored), outputs=outputs, result=result
                )
            else:
                _score_verdicts(
                    suite, job, cases, stored=stored, outputs=outputs, result=result, on=on_change
                )
    except OSError as error:
        place = error.filename or next(iter(job.outputs.values()))
        raise disk_error(Path(place), error, "written") from error
    return result


def _score_verdicts(
    suite: Suite,
    job: CellJob,
    cases: Mapping[str, Case],
    *,
    stored: Iterator[StoredResponse],
    outputs: Mapping[str, _Output],
    result: CellResult,
    on: OnChange,
) -> None:
    scorers = [(name, suite.scorers[name], output) for name, output in outputs.items()]
    place = "/".join(job.responses.with_suffix("").parts[-3:])
    for item in stored:
        case = cases[item.response.case_id]
        base: Score | None = None
        for name, scorer, output in scorers:
            score = scorer(case, item.response)
            output.write(score_line(score, item.check))
            if name == job.baseline:
                base = score
            elif base is not None and _differs(base, score):
                result.changes += 1
                on(_change(place, base, score))
        result.rows += 1


def _score_tokens(
    suite: Suite,
    job: CellJob,
    cases: Mapping[str, Case],
    *,
    stored: Sequence[StoredResponse],
    outputs: Mapping[str, _Output],
    result: CellResult,
) -> None:
    """Token rows need their whole cell: which tokens overlapped is told by all of them."""
    responses = [item.response for item in stored]
    for name, output in outputs.items():
        scorer = suite.token_scorers[name]
        rows = [scorer(cases[response.case_id], response) for response in responses]
        if suite.annotate_cell is not None:
            rows = suite.annotate_cell(rows, responses, concurrency=job.concurrency)
        for row, item in zip(rows, stored, strict=True):
            output.write(nll_line(row, item.check))
    result.rows += len(responses)


def score_line(score: Score, check: str) -> bytes:
    """Return one line of a score file; `detail` is canonical JSON and goes in as it is."""
    return (
        f'{{"case_id":{_quote(score.case_id)},"replicate":{score.replicate},'
        f'"outcome":"{score.outcome}","reason":{_quote(score.reason)},'
        f'"scorer":"{score.scorer}","detail":{score.detail},"response_digest":"{check}"}}\n'
    ).encode("ascii")


def nll_line(row: NllRow, check: str) -> bytes:
    """Return one line of an NLL score file."""
    value = {
        "case_id": row.case_id,
        "replicate": row.replicate,
        "mode": row.mode,
        "outcome": row.outcome,
        "reason": row.reason,
        "scorer": row.scorer,
        "token_ids": row.token_ids,
        "logprobs": row.logprobs,
        "in_flight": row.in_flight,
        "pure": row.pure,
        "top_logprobs": json.loads(row.top_logprobs),
        "clamped": sum(value is None for value in row.logprobs),
        "response_digest": check,
    }
    return (canonical_json(value) + "\n").encode("ascii")


def _differs(before: Score, after: Score) -> bool:
    return before.outcome != after.outcome or after.reason.startswith(EXCLUDED_PREFIX)


def _change(place: str, before: Score, after: Score) -> Change:
    return Change(
        place=place,
        case_id=before.case_id,
        before=f"{before.scorer} {before.outcome} ({before.reason})",
        after=f"{after.scorer} {after.outcome} ({after.reason})",
        rule=json.loads(after.detail).get("rule", ""),
    )


class _Output:
    """A score file being written: kept if it is new, compared if it was there before."""

    def __init__(self, path: Path, result: CellResult) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        self._result = result
        self._file: BinaryIO

    def __enter__(self) -> _Output:
        make_directory(self._path.parent)
        self._file = self._partial.open("wb")
        self.write = self._file.write
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        try:
            self._file.close()
        except OSError:
            self._partial.unlink(missing_ok=True)  # a full disk shows only now
            raise
        if kind is not None:
            self._partial.unlink()
            return
        if not self._path.exists():
            self._partial.replace(self._path)
            self._result.written.append(self._path)
            return
        difference = _first_difference(self._path, self._partial)
        self._partial.unlink()
        if difference is None:
            self._result.unchanged.append(self._path)
        else:
            self._result.differing.append(f"{self._path} {difference}")


def _first_difference(old: Path, new: Path) -> str | None:
    """Return the first line that differs and how, None if the files are equal."""
    with old.open("rb") as before, new.open("rb") as after:
        number = 0
        while True:
            number += 1
            left, right = before.readline(), after.readline()
            if left != right:
                return f"line {number}: {_how(left, right)}"
            if not left:
                return None


def _how(left: bytes, right: bytes) -> str:
    """Say whether a stored line is another score, or no whole score of this response at all."""
    if not left:
        return "damaged: the stored scores end here"
    try:
        old, new = json.loads(left), json.loads(right or b"{}")
        if left.endswith(b"\n") and all(old[name] == new[name] for name in SAME):
            return "stored scores differ from what this version gives now"
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    return "damaged: not a score of the response that is stored"


@lru_cache(maxsize=16)
def run_cases(run_dir: Path, entry: str) -> Mapping[str, Case]:
    """Return {case id: case} of one entry, from the run's own copy. Raises ManifestError."""
    return frozen_cases(run_dir, frozen_manifest(run_dir).entries[entry])
