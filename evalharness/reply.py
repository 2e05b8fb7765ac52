"""Read what every reply of a completion endpoint has in common: usage, finish reason, token ids.

Pure: no network. Never raises; what is not a reply is named as a problem instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from evalharness.lenient_json import loads
from evalharness.sse import DONE, events
from evalharness.types import canonical_json

MAX_FINISH_REASON = 64
_ORDINARY_REASONS = ("stop", "length", "tool_calls")
CHECKED_ENDPOINTS = ("/v1/chat/completions", "/v1/completions")


class Reply(NamedTuple):
    """Common parts of one reply. `problem` says why the body is not the reply asked for."""

    usage: str | None = None
    finish_reason: str | None = None
    token_ids: tuple[int, ...] | None = None
    problem: str | None = None


def read_reply(body: str, *, endpoint: str, model: str) -> Reply:
    """Read an unstreamed body. `model` is the name that the request asked for.

    Endpoints other than OpenAI's completions are kept as they are: their suite knows them.
    """
    try:
        # The ordinary reply, read without a second look: this runs once per response.
        value = orjson.loads(body)
        choices = value["choices"]
        choice, reason = choices[0], choices[0]["finish_reason"]
        if (
            value["model"] == model
            and type(choices) is list
            and type(choice) is dict
            and reason in _ORDINARY_REASONS
            and "error" not in value
            and "token_ids" not in choice
            and type(value["usage"]) is dict
        ):
            usage = orjson.dumps(value["usage"], option=orjson.OPT_SORT_KEYS)
            if usage.isascii():
                return Reply(usage.decode("ascii"), reason)
    except (LookupError, TypeError, ValueError):
        pass
    return _read_carefully(body, endpoint, model)


def _read_carefully(body: str, endpoint: str, model: str) -> Reply:
    value = loads(body)
    if not isinstance(value, dict):
        return Reply(problem="the body is not a JSON object")
    problem = _problem(value, model) if endpoint in CHECKED_ENDPOINTS else None
    if problem is not None:
        return Reply(problem=problem)
    choice = _first_choice(value)
    usage = value.get("usage")
    return Reply(
        None if usage is None else _usage(usage), _finish_reason(choice), _token_ids(choice)
    )


def read_stream(body: str, *, endpoint: str, model: str) -> Reply:
    """Read a streamed body: the last usage and finish reason, the token ids joined."""
    usage: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] = []
    payloads = events(body)
    if not payloads or payloads[-1] != DONE:
        return Reply(problem="the stream ended without [DONE]")
    for number, payload in enumerate(payloads[:-1], start=1):
        value = loads(payload)
        if not isinstance(value, dict):
            return Reply(problem=f"event {number} is not a JSON object")
        problem = _problem(value, model, streamed=True) if endpoint in CHECKED_ENDPOINTS else None
        if problem is not None:
            return Reply(problem=f"event {number}: {problem}")
        choice = _first_choice(value)
        usage = _usage(value.get("usage")) or usage
        finish_reason = _finish_reason(choice) or finish_reason
        token_ids.extend(_token_ids(choice) or ())
    return Reply(usage, finish_reason, tuple(token_ids) or None)


def _problem(value: dict[str, Any], model: str, *, streamed: bool = False) -> str | None:
    if value.get("error"):
        return "the server reports an error in a reply with status 200"
    choices = value.get("choices")
    if not isinstance(choices, list) or not (choices or (streamed and "usage" in value)):
        return "no list of choices"
    if choices and not isinstance(choices[0], dict):
        return "the first choice is not an object"
    if value.get("model", model) != model:
        return "the reply names another model than the one asked for"
    return None


def _first_choice(value: dict[str, Any]) -> dict[str, Any]:
    choices = value.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0]
    return {}


def _finish_reason(choice: dict[str, Any]) -> str | None:
    reason = choice.get("finish_reason")
    if isinstance(reason, str) and reason.isascii() and len(reason) <= MAX_FINISH_REASON:
        return reason
    return None


def _usage(usage: Any) -> str | None:
    if not isinstance(usage, dict):
        return None
    try:
        raw = orjson.dumps(usage, option=orjson.OPT_SORT_KEYS)
        return raw.decode("ascii") if raw.isascii() else canonical_json(usage)
    except (TypeError, ValueError, RecursionError):
        return None


def _token_ids(choice: dict[str, Any]) -> tuple[int, ...] | None:
    ids = choice.get("token_ids")
    if ids is None:
        return None
    if isinstance(ids, list) and all(type(token) is int and 0 <= token < 2**31 for token in ids):
        return tuple(ids)
    return None
