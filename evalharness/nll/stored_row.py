"""A line of stored NLL rows, held against what comparing two replays takes for granted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from evalharness.errors import StoreError

LARGEST_TOKEN_ID = (1 << 32) - 1
# As in a run's scores; rounding can lift that of a certain token a little above zero.
LOGPROBS = (-1e5, 1e-2)


def checked_row(line: bytes, place: str) -> dict[str, Any]:
    """Return the row of a line (formats/nll_row.schema.json, the members that are compared).

    Raises StoreError naming `place`, the member, what was expected and found.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{place}: not JSON ({error}); {ADVICE}") from error
    if not isinstance(row, dict):
        raise StoreError(f"{place}: found {row!r:.60}, expected an object; {ADVICE}")
    for name, (expected, sound) in MEMBERS.items():
        if not sound(row.get(name)):
            found = f"{row[name]!r:.60}" if name in row else "nothing"
            raise StoreError(f"{place}: {name}: found {found}, expected {expected}; {ADVICE}")
    lengths = _lengths(row)
    if row["outcome"] == "observed" and len(set(lengths.values())) != 1:
        told = ", ".join(f"{count} {name}" for name, count in lengths.items())
        raise StoreError(f"{place}: found {told}, expected as many of each; {ADVICE}")
    return row


def _lengths(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: len(row[name]) for name in ("token_ids", "logprobs", "pure")}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_replicate(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_token_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_TOKEN_ID


def _is_logprob(value: object) -> bool:
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return LOGPROBS[0] < value < LOGPROBS[1]


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _list_of(sound: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(sound, value))


ADVICE = "expected a row of `evalharness nll replay`; replay the cases again"
MEMBERS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "case_id": ("text", _is_text),
    "replicate": ("a whole number", _is_replicate),
    "mode": ("text", _is_text),
    "outcome": ("observed or unobserved", lambda value: value in ("observed", "unobserved")),
    "reason": ("text", _is_text),
    "token_ids": ("a list of token ids below 2**32", _list_of(_is_token_id)),
    "logprobs": ("a list of natural-log probabilities or null", _list_of(_is_logprob)),
    "pure": ("a list of true or false", _list_of(_is_flag)),
}
