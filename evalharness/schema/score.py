"""(case, response) -> Score, and vector rows -> verdict rows, for JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evalharness.chat import Reply, make_score, read_reply
from evalharness.errors import ScoreError
from evalharness.schema.isolation import shared_judge
from evalharness.types import Case, Outcome, Response, Score

STRICT = "strict/1"


def outcome_of(tag: str) -> Outcome:
    """Return the outcome of a judge's tag; where the judge had no verdict there is none."""
    if tag.startswith("judge:"):
        return "unobserved"
    return "correct" if tag == "valid" else "wrong"


def strict(case: Case, response: Response) -> Score:
    """Score a response strictly; raises ScoreError only if a format checker is missing."""
    reply = read_reply(response)
    if not isinstance(reply, Reply):
        return make_score(response, reply, correct=False, reason="", scorer=STRICT)
    schema_text = json.loads(case.expected)["schema"]
    tag = shared_judge().judge(schema_text, reply.content, reply.finish_reason)
    reason = "truncated" if tag == "finish_reason" and reply.truncated else tag
    score = make_score(response, reply, correct=tag == "valid", reason=reason, scorer=STRICT)
    if outcome_of(tag) == "unobserved":
        return Score(score.case_id, score.replicate, "unobserved", tag, STRICT, score.detail)
    return score


SCORERS = {STRICT: strict}


def score_vector(row: Mapping[str, Any], scorer: str) -> dict[str, Any]:
    """Return the verdict row of a vector row (`id`, `schema`, `output`, `finish_reason`).

    Raises ScoreError where a field is missing or has the wrong type.
    """
    schema, output = row.get("schema"), row.get("output")
    if not isinstance(schema, dict | bool):
        raise ScoreError(f"field schema: expected object or boolean, found {_found(row, 'schema')}")
    if not isinstance(output, str):
        raise ScoreError(f"field output: expected text, found {_found(row, 'output')}")
    try:
        schema_text = json.dumps(schema)
    except (ValueError, RecursionError) as error:
        raise ScoreError(f"field schema: cannot be written as JSON: {error}") from None
    tag = shared_judge().judge(schema_text, output, row.get("finish_reason"))
    return {"id": row.get("id"), "outcome": outcome_of(tag), "reason": tag, "scorer": scorer}


def _found(row: Mapping[str, Any], name: str) -> str:
    return type(row[name]).__name__ if name in row else "nothing"
