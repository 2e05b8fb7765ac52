"""The lines of a run directory: response lines with their checks, and the scores beside them.

Nothing damaged is used silently: a torn, altered or doubled line is named, and a score that
does not belong to the stored response is unobserved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from evalharness.errors import StoreError
from evalharness.store.lines import decode_line
from evalharness.types import Outcome

State = Literal["complete", "incomplete", "aborted"]
OUTCOMES = ("correct", "wrong", "unobserved")
MOST_TOKENS = 1 << 40


@dataclass(frozen=True, slots=True)
class CaseScore:
    """One scored response. `output_tokens` and `truncated` are None where the scorer had none.

    `rule` says by which rule a reading differs from its suite's official one.
    """

    outcome: Outcome
    reason: str
    output_tokens: int | None = None
    truncated: bool | None = None
    rule: str = ""


@dataclass(frozen=True, slots=True)
class CaseNll:
    """Natural-log probabilities of one case's forced tokens; empty where unobserved.

    `top[i]` maps token id to log-probability at position i, where the server gave them.
    """

    observed: bool
    reason: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float | None, ...] = ()
    pure: tuple[bool, ...] = ()
    top: tuple[Mapping[str, float], ...] = ()
    clamped: int = 0


def loads_line(line: bytes) -> Any:
    """Parse one stored line; escaped lone surrogates, which orjson refuses, included."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line)


def verify_cell(record: Mapping[str, Any], file: Path) -> tuple[State, str, dict[str, str]]:
    """Compare a response file with its cell record; checks maps case id -> line check."""
    checks: dict[str, str] = {}
    if record["state"] != "complete":
        return record["state"], record["reason"] or "the cell did not finish", checks
    try:
        raw = file.read_bytes()
    except OSError as error:
        return "incomplete", f"{file.name}: {error.strerror}", checks
    for number, line in enumerate(raw.split(b"\n")[:-1], start=1):
        try:
            stored = decode_line(line)
        except ValueError as error:
            return "incomplete", f"{file.name} line {number} is {error}", checks
        case_id = stored.response.case_id
        if case_id in checks:
            return "incomplete", f"{file.name} line {number} repeats case {case_id!r}", checks
        checks[case_id] = stored.check
    if raw and not raw.endswith(b"\n"):
        return "incomplete", f"{file.name}: its last line is torn", checks
    digest = hashlib.sha256(raw).hexdigest()
    if digest != record["responses_sha256"]:
        stated = str(record["responses_sha256"])[:12]
        return "incomplete", f"{file.name} has digest {digest[:12]}, its record {stated}", checks
    return "complete", "", checks


def read_scores(
    file: Path, checks: Mapping[str, str], scorer: str
) -> tuple[dict[str, CaseScore], dict[str, CaseNll]]:
    """Read a cell's score file by case id; `checks` are the stored responses' own.

    Raises StoreError where the file is absent, holds something else, or scores a case twice.
    """
    scores: dict[str, CaseScore] = {}
    nll: dict[str, CaseNll] = {}
    for number, line in enumerate(_score_bytes(file, scorer).splitlines(), start=1):
        try:
            row = loads_line(line)
            case_id = _text(row["case_id"])
            stale = checks.get(case_id) != row["response_digest"]
            if case_id in scores or case_id in nll:
                raise ValueError(f"case {case_id!r} is scored twice")
            if "logprobs" in row:
                nll[case_id] = _nll_of(row, stale)
            else:
                scores[case_id] = _score_of(row, stale, scorer)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"{file} line {number}: not a score ({error}); delete {file}, then run "
                "`evalharness rescore RUN`"
            ) from error
    return scores, nll


def _score_bytes(file: Path, scorer: str) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise StoreError(
            f"{file}: no scores by {scorer} for a complete cell; run `evalharness rescore RUN`"
        ) from None
    except OSError as error:
        raise StoreError(
            f"{file}: {error.strerror}; expected scores by {scorer}; delete it, then run "
            "`evalharness rescore RUN`"
        ) from error


def _score_of(row: Mapping[str, Any], stale: bool, scorer: str) -> CaseScore:
    if row["scorer"] != scorer:
        return CaseScore("unobserved", f"scored by {row['scorer']}, not by {scorer}")
    if stale:
        return CaseScore("unobserved", "the score does not belong to the stored response")
    outcome, detail = row["outcome"], row["detail"]
    if outcome not in OUTCOMES:
        raise ValueError(f"outcome {outcome!r}")
    tokens, truncated = detail.get("output_tokens"), detail.get("truncated")
    return CaseScore(
        outcome,
        _text(row["reason"]),
        tokens if type(tokens) is int and 0 <= tokens < MOST_TOKENS else None,
        truncated if isinstance(truncated, bool) else None,
        _text(detail.get("rule", "")),
    )


def _nll_of(row: Mapping[str, Any], stale: bool) -> CaseNll:
    if stale:
        return CaseNll(False, "the score does not belong to the stored response")
    if row["outcome"] != "observed":
        return CaseNll(False, _text(row["reason"]))
    return CaseNll(
        observed=True,
        reason=_text(row["reason"]),
        token_ids=tuple(_token_id(value) for value in row["token_ids"]),
        logprobs=tuple(None if v is None else _logprob(v) for v in row["logprobs"]),
        pure=tuple(value is True for value in row["pure"]),
        top=tuple({str(t): _logprob(v) for t, v in one.items()} for one in row["top_logprobs"]),
        clamped=int(row["clamped"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r}")
    return value


def _token_id(value: object) -> int:
    if type(value) is not int or not 0 <= value < MOST_TOKENS:
        raise ValueError(f"token id {value!r}")
    return value


def _logprob(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"log-probability {value!r}")
    # rounding can lift the logarithm of a certain token a little above zero
    if not -1e5 < value < 1e-2:
        raise ValueError(f"log-probability {value!r}")
    return float(value)
