"""What a stored response says of its tokens: how many, in which event, and whether all came.

Reading is total: any stored response gives an `Answer` or an `Unobserved`, never an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evalharness.chat import SERVER_SIDE_FINISH, Unobserved
from evalharness.lenient_json import loads
from evalharness.sse import DONE, events
from evalharness.types import Response


@dataclass(frozen=True, slots=True)
class Answer:
    """One completion.

    tokens: generated tokens by the server's usage, None where it gives none. events[i] is the
    index of the i-th event that carried tokens, counts[i] how many; both are empty for a body
    that was not streamed, and where the events' counts do not add up to `tokens`.
    """

    tokens: int | None
    finish_reason: str | None
    streamed: bool
    events: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()


def read_answer(response: Response) -> Answer | Unobserved:
    """Return what came back, or why it was never seen whole."""
    if response.status != "ok":
        code = f":{response.http_code}" if response.http_code is not None else ""
        return Unobserved(f"{response.status}{code}")
    if response.body_encoding != "utf-8":
        return Unobserved("bad_body:not_utf8")
    whole = response.body.lstrip().startswith("{")
    found = _read_whole(response.body) if whole else _read_stream(response.body)
    if isinstance(found, Answer) and found.finish_reason in SERVER_SIDE_FINISH:
        return Unobserved(f"finish_reason:{found.finish_reason}", found.tokens)
    return found


def _read_whole(body: str) -> Answer | Unobserved:
    choice, value = _choice(loads(body))
    if choice is None:
        return Unobserved("bad_body:no_choices")
    return Answer(_completion_tokens(value), _finish(choice), streamed=False)


def _read_stream(body: str) -> Answer | Unobserved:
    payloads = events(body)
    if not payloads:
        return Unobserved("bad_body:not_json")
    if payloads[-1] != DONE:
        return Unobserved("stream_ended_early")
    tally = _Tally()
    for number, payload in enumerate(payloads[:-1]):
        value = loads(payload)
        if not isinstance(value, dict):
            return Unobserved("bad_body:bad_event")
        if value.get("error"):
            return Unobserved("server_error_event")
        tally.take(number, value)
    return tally.answer() if tally.seen else Unobserved("bad_body:no_choices")


class _Tally:
    """Adds up a stream's tokens. Without counts, an event with a choice stands for one token."""

    def __init__(self) -> None:
        self.seen = False
        self._finish: str | None = None
        self._total: int | None = None
        self._events: list[int] = []
        self._counts: list[int] = []
        self._so_far = 0

    def take(self, number: int, value: dict[str, Any]) -> None:
        """Add event `number`."""
        so_far = _completion_tokens(value)
        choice, _ = _choice(value)
        if choice is not None:
            self.seen = True
            self._finish = _finish(choice) or self._finish
            ids = choice.get("token_ids")
            count = len(ids) if isinstance(ids, list) else 1
            if so_far is not None:
                count = so_far - self._so_far
            if count > 0:
                self._events.append(number)
                self._counts.append(count)
        if so_far is not None:
            self._so_far = self._total = so_far

    def answer(self) -> Answer:
        sound = self._total is None or sum(self._counts) == self._total
        return Answer(
            self._total,
            self._finish,
            streamed=True,
            events=tuple(self._events) if sound else (),
            counts=tuple(self._counts) if sound else (),
        )


def _choice(value: Any) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return (first choice or None, the object it stands in)."""
    if not isinstance(value, dict):
        return None, {}
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return (first if isinstance(first, dict) else None), value


def _completion_tokens(value: dict[str, Any]) -> int | None:
    usage = value.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if type(count) is int and count >= 0 else None


def _finish(choice: dict[str, Any]) -> str | None:
    reason = choice.get("finish_reason")
    return reason if isinstance(reason, str) else None
