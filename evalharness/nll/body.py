"""Read a server's answer: the tokens it says it made, and their log-probabilities.

A log-probability that is null, not finite, or at the server's clamp becomes None; it is counted
and never summed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from evalharness.sse import DONE, events

# vLLM writes -9999.0 where it means minus infinity (JSON has no word for it).
CLAMP = -9999.0
TOKEN_ID_PREFIX = "token_id:"


class BodyError(ValueError):
    """The body is not what the endpoint promises; the text is the reason tag."""


@dataclass(slots=True)
class Observed:
    """What one answer holds. All lists have one entry per token, in order.

    `event[i]` is the index of the event that carried token i (0 for an unstreamed body);
    `texts[i]` is the token's text where the server gave it alone, else the text of its event.
    """

    prompt_ids: list[int] | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    top: list[dict[str, float]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    event: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    ended: bool = False


def clean(value: object) -> float | None:
    """Return a usable natural-log probability, or None where it is null or clamped."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value)
    return number if math.isfinite(number) and number > CLAMP else None


def read_stream(body: str) -> Observed:
    """Read a streamed completion. A chunk may carry several tokens, or none.

    Raises BodyError with a reason tag on an error event or a chunk of another form.
    """
    seen = Observed()
    for number, payload in enumerate(events(body)):
        if payload == DONE:
            seen.ended = True
            continue
        chunk = _loads(payload)
        if "error" in chunk:
            raise BodyError("stream_error")
        for choice in chunk.get("choices") or ():
            _add_chunk(seen, choice, number)
    return seen


def read_prefill(body: str) -> Observed:
    """Read an unstreamed completion's `prompt_logprobs`: one entry per prompt token.

    Raises BodyError with a reason tag where the body has no such list.
    """
    choices = _loads(body).get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise BodyError("malformed_body:choices")
    ids, entries = choices[0].get("prompt_token_ids"), choices[0].get("prompt_logprobs")
    if not isinstance(ids, list):
        raise BodyError("malformed_body:prompt_token_ids")
    if not isinstance(entries, list) or len(entries) != len(ids):
        raise BodyError("malformed_body:prompt_logprobs")
    seen = Observed(prompt_ids=[], ended=True, finish_reason=choices[0].get("finish_reason"))
    for token, entry in zip(ids, entries, strict=True):
        _add_prompt_entry(seen, token, entry)
    return seen


def _add_chunk(seen: Observed, choice: Mapping[str, Any], number: int) -> None:
    if choice.get("prompt_token_ids") is not None and seen.prompt_ids is None:
        seen.prompt_ids = list(choice["prompt_token_ids"])
    ids = choice.get("token_ids") or []
    logprobs = choice.get("logprobs") or {}
    values = logprobs.get("token_logprobs") or []
    if len(ids) != len(values):
        raise BodyError("malformed_body:token_logprobs")
    seen.token_ids += ids
    seen.logprobs += [clean(value) for value in values]
    seen.top += [dict(_by_id(entry)) for entry in (logprobs.get("top_logprobs") or [{}] * len(ids))]
    seen.texts += _texts(choice, len(ids))
    seen.event += [number] * len(ids)
    seen.finish_reason = choice.get("finish_reason") or seen.finish_reason


def _texts(choice: Mapping[str, Any], count: int) -> list[str]:
    named = (choice.get("logprobs") or {}).get("tokens") or []
    if len(named) == count and not any(str(one).startswith(TOKEN_ID_PREFIX) for one in named):
        return [str(one) for one in named]
    return [str(choice.get("text", ""))] * count


def _by_id(entry: Mapping[str, Any] | None) -> Iterator[tuple[str, float]]:
    """Yield (token id, logprob) of a `top_logprobs` entry whose tokens are named by id."""
    for name, value in (entry or {}).items():
        number = clean(value)
        if name.startswith(TOKEN_ID_PREFIX) and number is not None:
            yield name.removeprefix(TOKEN_ID_PREFIX), number


def _add_prompt_entry(seen: Observed, token: object, entry: object) -> None:
    own: Mapping[str, Any] = {}
    top: dict[str, float] = {}
    if isinstance(entry, Mapping):
        own = entry.get(str(token)) or {}
        for name, one in entry.items():
            number = clean(one.get("logprob"))
            if number is not None:
                top[name] = number
    if type(token) is not int:
        raise BodyError("malformed_body:prompt_token_ids")
    seen.token_ids.append(token)
    seen.logprobs.append(clean(own.get("logprob")))
    seen.top.append(top)
    seen.texts.append(str(own.get("decoded_token", "")))
    seen.event.append(0)


def _loads(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BodyError("malformed_body:json") from error
    if not isinstance(value, dict):
        raise BodyError("malformed_body:json")
    return value
