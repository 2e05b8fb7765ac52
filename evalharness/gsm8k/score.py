"""(case, response) -> Score, and vector rows -> verdict rows, for GSM8K."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from evalharness.chat import Reply, make_score, read_reply
from evalharness.errors import ScoreError
from evalharness.gsm8k.answers import Readings, read_answer
from evalharness.types import Case, Response, Score

_PICK: dict[str, Callable[[Readings], bool]] = {
    "strict/1": lambda readings: readings.strict,
    "flexible/1": lambda readings: readings.flexible,
    "numeric/1": lambda readings: readings.numeric,
}


def _reason(readings: Readings, *, correct: bool, truncated: bool) -> str:
    """Say why: a truncated reply is reported apart, and so is a merely differing notation."""
    if correct:
        return "valid"
    if truncated:
        return "truncated"
    return "format_only" if readings.numeric else "wrong_answer"


def _scorer(name: str) -> Callable[[Case, Response], Score]:
    def score(case: Case, response: Response) -> Score:
        reply = read_reply(response)
        content = reply.content if isinstance(reply, Reply) else ""
        readings = read_answer(content, json.loads(case.expected)["gold"])
        correct = _PICK[name](readings)
        truncated = isinstance(reply, Reply) and reply.truncated
        detail = (
            {
                "strict": readings.strict,
                "flexible": readings.flexible,
                "numeric": readings.numeric,
            }
            if isinstance(reply, Reply)
            else {}
        )
        return make_score(
            response,
            reply,
            correct=correct,
            reason=_reason(readings, correct=correct, truncated=truncated),
            scorer=name,
            detail=detail,
        )

    return score


SCORERS = {name: _scorer(name) for name in _PICK}


def score_vector(row: Mapping[str, Any], scorer: str) -> dict[str, Any]:
    """Return the verdict row of a vector row (`id`, `gold`, `output`; `finish_reason` optional).

    Raises ScoreError where a field is missing or has the wrong type.
    """
    for field in ("gold", "output"):
        if not isinstance(row.get(field), str):
            raise ScoreError(f"field {field}: expected text, found {type(row.get(field)).__name__}")
    readings = read_answer(row["output"], row["gold"])
    correct = _PICK[scorer](readings)
    truncated = row.get("finish_reason") == "length"
    return {
        "id": row.get("id"),
        "outcome": "correct" if correct else "wrong",
        "reason": _reason(readings, correct=correct, truncated=truncated),
        "scorer": scorer,
        "strict": readings.strict,
        "flexible": readings.flexible,
        "numeric": readings.numeric,
    }
