"""`evalharness score`: a file of vector rows becomes a file of verdict rows, in the same order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from evalharness.errors import ScoreError
from evalharness.registry import SUITES
from evalharness.store.output import output_file
from evalharness.strict_json import parse_int_any
from evalharness.suite import Suite, VectorScorer


@dataclass(slots=True)
class VectorSummary:
    """Rows by outcome; `faults` counts the rows that could not be judged."""

    rows: int = 0
    correct: int = 0
    wrong: int = 0
    unobserved: int = 0
    faults: int = 0


def vector_suite(name: str, scorer: str | None) -> tuple[Suite, str]:
    """Return the suite and scorer version meant; `official` means the newest `official/N`.

    Raises ScoreError naming what there is.
    """
    suite = next((suite for suite in SUITES if suite.name == name), None)
    if suite is None or suite.score_vector is None:
        known = ", ".join(suite.name for suite in SUITES if suite.score_vector)
        raise ScoreError(f"unknown suite {name!r}; `evalharness score` knows {known}")
    return suite, pick_scorer(suite, scorer)


def pick_scorer(suite: Suite, scorer: str | None) -> str:
    """Return a suite's scorer version by its full or bare name; the default for None."""
    if scorer is None:
        return suite.default_scorer
    known = [*suite.scorers, *suite.token_scorers]
    found = [name for name in known if scorer in (name, name.partition("/")[0])]
    if not found:
        raise ScoreError(
            f"{suite.name}: unknown scorer {scorer!r}; expected one of {', '.join(known)}"
        )
    return max(found, key=lambda name: int(name.partition("/")[2]))


def score_vectors(
    suite: Suite,
    scorer: str,
    *,
    source: Path,
    target: Path,
    report: Callable[[str], object],
) -> VectorSummary:
    """Judge every row of `source` into `target`; faults go to `report` with file and line.

    Raises ScoreError where `source` cannot be read, StoreError where `target` cannot be written
    or is `source` itself; what stood in `target` is then still there.
    """
    if suite.score_vector is None:
        raise ScoreError(f"suite {suite.name} has no vectors")
    summary = VectorSummary()
    with _readable(source) as stream, output_file(target, inputs=(source,)) as out:
        for number, line in _rows(stream, source):
            verdict, text, fault = verdict_line(line, suite.score_vector, scorer)
            if fault:
                summary.faults += 1
                report(f"{source} line {number}: {fault}")
            out.write(text.encode("ascii"))
            summary.rows += 1
            _count(summary, verdict["outcome"])
    return summary


def _readable(source: Path) -> BinaryIO:
    try:
        return source.open("rb")
    except OSError as error:
        raise ScoreError(f"{source}: {error.strerror}; give a readable file") from error


def _count(summary: VectorSummary, outcome: str) -> None:
    if outcome == "correct":
        summary.correct += 1
    elif outcome == "wrong":
        summary.wrong += 1
    else:
        summary.unobserved += 1


def _rows(stream: BinaryIO, source: Path) -> Iterator[tuple[int, bytes]]:
    try:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield number, line
    except OSError as error:
        raise ScoreError(f"{source}: {error.strerror}; give a readable file") from error


def verdict_line(
    line: bytes, judge: VectorScorer, scorer: str
) -> tuple[Mapping[str, Any], str, str]:
    """Return a row's verdict, its line of output, and what is wrong with the row ("" if nothing).

    Never raises: a row that cannot be judged is unobserved with the fault as its reason.
    """
    row_id = None
    try:
        row = json.loads(
            line.decode("utf-8"), parse_int=parse_int_any, parse_constant=_refuse_constant
        )
        if not isinstance(row, dict):
            raise ScoreError(f"expected a JSON object, found {type(row).__name__}")
        row_id = row.get("id")
        verdict = judge(row, scorer)
        return verdict, json.dumps(verdict) + "\n", ""
    except ScoreError as error:
        fault = str(error)
    except RecursionError:
        fault = "the row is nested too deep to be read"
    except ValueError as error:
        fault = f"not JSON: {error}"
    return _bad_row(row_id, scorer, fault)


def _bad_row(row_id: Any, scorer: str, fault: str) -> tuple[Mapping[str, Any], str, str]:
    bad = {"outcome": "unobserved", "reason": f"bad_row: {fault}", "scorer": scorer}
    try:
        return bad, json.dumps({"id": row_id, **bad}) + "\n", fault
    except (ValueError, RecursionError):  # an id that JSON cannot hold
        return bad, json.dumps({"id": None, **bad}) + "\n", fault


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")
