"""Chat completions: the body that asks for one, and the reply read back from a stored response.

Reading is total: any stored response gives a `Reply` or an `Unobserved`, never an exception.
Source: the OpenAI chat completions format as vLLM 0.32 serves it, plain and streamed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalharness.errors import ManifestError
from evalharness.lenient_json import loads
from evalharness.sse import DONE, events
from evalharness.types import Case, Request, RequestContext, Response, Score, canonical_json

ENDPOINT = "/v1/chat/completions"
# The server gave up on the request: what the model would have said was never seen.
SERVER_SIDE_FINISH = frozenset({"abort", "error"})


@dataclass(frozen=True, slots=True)
class RawCall:
    """One tool call as the server sent it; `arguments` should be JSON text, and may be anything."""

    name: Any
    arguments: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model said: `content` is "" where the server sent null or nothing."""

    content: str
    calls: tuple[RawCall, ...]
    finish_reason: str | None
    output_tokens: int | None

    @property
    def truncated(self) -> bool:
        """True when the token limit ended the reply."""
        return self.finish_reason == "length"


@dataclass(frozen=True, slots=True)
class Unobserved:
    """The model's answer was never seen whole; `reason` says why."""

    reason: str
    output_tokens: int | None = None


def chat_request(
    case: Case,
    context: RequestContext,
    *,
    messages: Sequence[Mapping[str, Any]],
    fields: Mapping[str, Any] | None = None,
) -> Request:
    """Return the non-streamed chat completion that asks `messages`.

    The body's keys keep the order given: the order of a schema's members reaches the model.
    `sampling.extra` may add fields but not replace one. Raises ManifestError if it tries.
    """
    sampling = context.sampling
    body: dict[str, Any] = {
        "model": context.model,
        "messages": list(messages),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": context.seed,
        "n": 1,
        "stream": False,
        **(fields or {}),
    }
    extra = json.loads(sampling.extra)
    if clash := sorted(set(extra) & set(body)):
        raise ManifestError(
            f"{case.suite}: sampling.extra of the manifest sets {', '.join(clash)}, which the "
            "harness sets itself; expected further fields only; remove them from `extra`"
        )
    text = json.dumps({**body, **extra}, separators=(",", ":"), allow_nan=False)
    return Request(case.case_id, context.replicate, ENDPOINT, text)


def require_template(case: Case, context: RequestContext, known: Sequence[str]) -> None:
    """Raise ManifestError unless the manifest's template version is one that the suite has."""
    if context.template not in known:
        raise ManifestError(
            f"{case.suite}: unknown request template {context.template!r}; expected one of "
            f"{', '.join(known)}; correct `template` in the manifest"
        )


def require_mode(case: Case, context: RequestContext, known: Sequence[str]) -> None:
    """Raise ManifestError unless the suite can be asked in the context's mode."""
    if context.mode not in known:
        raise ManifestError(
            f"{case.suite}: unknown mode {context.mode!r}; expected one of {', '.join(known)}; "
            "correct `modes` in the manifest"
        )


def read_reply(response: Response) -> Reply | Unobserved:
    """Return what the model said in a stored response, or why that was never seen. Never raises."""
    tokens = _output_tokens(loads(response.usage) if response.usage else None)
    if response.status != "ok":
        code = f":{response.http_code}" if response.http_code is not None else ""
        return Unobserved(f"{response.status}{code}", tokens)
    if response.http_code is not None and not 200 <= response.http_code < 300:
        return Unobserved(f"http_error:{response.http_code}", tokens)
    if response.body_encoding != "utf-8":
        return Unobserved("bad_body:not_utf8", tokens)
    if response.body.lstrip().startswith("{"):
        reply = _read_whole(response.body, tokens)
    else:
        reply = _read_stream(response.body, tokens)
    if isinstance(reply, Reply) and reply.finish_reason in SERVER_SIDE_FINISH:
        return Unobserved(f"finish_reason:{reply.finish_reason}", reply.output_tokens)
    return reply


def make_score(
    response: Response,
    reply: Reply | Unobserved,
    *,
    correct: bool,
    reason: str,
    scorer: str,
    detail: Mapping[str, Any] | None = None,
) -> Score:
    """Return the Score of a reply; an `Unobserved` one is unobserved whatever `correct` says."""
    truncated = isinstance(reply, Reply) and reply.truncated
    kept = {**(detail or {}), "output_tokens": reply.output_tokens, "truncated": truncated}
    if isinstance(reply, Unobserved):
        return Score(
            response.case_id,
            response.replicate,
            "unobserved",
            reply.reason,
            scorer,
            canonical_json(kept),
        )
    return Score(
        response.case_id,
        response.replicate,
        "correct" if correct else "wrong",
        reason,
        scorer,
        canonical_json(kept),
    )


def _output_tokens(usage: Any) -> int | None:
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if type(count) is int else None


def _read_whole(body: str, tokens: int | None) -> Reply | Unobserved:
    document = loads(body)
    if not isinstance(document, dict):
        return Unobserved("bad_body:not_json", tokens)
    if tokens is None:
        tokens = _output_tokens(document.get("usage"))
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return Unobserved("bad_body:no_choices", tokens)
    message = choices[0].get("message")
    if not isinstance(message, dict):
        return Unobserved("bad_body:no_message", tokens)
    calls = message.get("tool_calls")
    return Reply(
        _text(message.get("content")),
        tuple(_raw_call(call) for call in calls) if isinstance(calls, list) else (),
        _finish(choices[0].get("finish_reason")),
        tokens,
    )


def _raw_call(call: Any) -> RawCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return RawCall(None, None)
    return RawCall(function.get("name"), function.get("arguments"))


def _text(content: Any) -> str:
    """Join the text parts of a message's content, which may be a string, parts or null."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def _finish(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _read_stream(body: str, tokens: int | None) -> Reply | Unobserved:
    stream = _Stream(tokens)
    for data in events(body):
        if data == DONE:
            break
        event = loads(data)
        if not isinstance(event, dict):
            return Unobserved("bad_body:bad_event", stream.tokens)
        if "error" in event:
            return Unobserved("server_error_event", stream.tokens)
        stream.take(event)
    if not stream.events:
        return Unobserved("bad_body:not_json", stream.tokens)
    if stream.finish_reason is None:
        return Unobserved("stream_ended_early", stream.tokens)
    calls = tuple(RawCall(name, "".join(parts)) for name, parts in stream.calls.values())
    return Reply("".join(stream.content), calls, stream.finish_reason, stream.tokens)


class _Stream:
    """Adds up the deltas of choice 0."""

    def __init__(self, tokens: int | None) -> None:
        self.tokens = tokens
        self.events = 0
        self.content: list[str] = []
        self.calls: dict[Any, tuple[str, list[str]]] = {}
        self.finish_reason: str | None = None

    def take(self, event: Mapping[str, Any]) -> None:
        """Add one event; parts of an unexpected type are left out."""
        self.events += 1
        if self.tokens is None:
            self.tokens = _output_tokens(event.get("usage"))
        choices = event.get("choices")
        if not isinstance(choices, list):
            return
        for choice in choices:
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self.finish_reason = _finish(choice.get("finish_reason")) or self.finish_reason
                self._delta(choice.get("delta"))

    def _delta(self, delta: Any) -> None:
        if not isinstance(delta, dict):
            return
        self.content.append(_text(delta.get("content")))
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            raw = _raw_call(call)
            index = call.get("index", 0) if isinstance(call, dict) else 0
            key = index if isinstance(index, int) else 0
            name, parts = self.calls.get(key, ("", []))
            # The name comes whole in a call's first delta; later ones carry null or "".
            self.calls[key] = (name or _text(raw.name), parts)
            parts.append(_text(raw.arguments))
