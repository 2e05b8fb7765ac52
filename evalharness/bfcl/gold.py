"""Golds that no call can satisfy, found by the rules themselves, and a call made from a gold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalharness.bfcl.checker import VALID, Call, Document, Gold, check_value, find_document

_ABSENT = object()


def oracle_calls(functions: Sequence[Document], golds: Sequence[Gold]) -> tuple[Call, ...] | None:
    """Return calls that satisfy the golds one by one, or None if a gold is unpassable.

    Parameters are judged apart from each other, so trying each one's accepted values is enough.
    """
    calls = []
    for gold in golds:
        arguments = _oracle_arguments(functions, gold)
        if arguments is None:
            return None
        calls.append((next(iter(gold)), arguments))
    return tuple(calls)


def _oracle_arguments(functions: Sequence[Document], gold: Gold) -> dict[str, Any] | None:
    try:
        document = find_document(functions, gold)
        properties = document["parameters"]["properties"]
        required = document["parameters"]["required"]
        accepted = next(iter(gold.values()))
        if any(parameter not in accepted for parameter in required):
            return None
        arguments = {}
        for parameter, values in accepted.items():
            schema = properties.get(parameter)
            value = _oracle_value(schema, values, omissible=parameter not in required)
            if value is None:
                return None
            if value[0] is not _ABSENT:
                arguments[parameter] = value[0]
    except (KeyError, TypeError, AttributeError, StopIteration):
        return None  # a document or gold that no rule can read satisfies nobody
    return arguments


def _oracle_value(
    schema: Mapping[str, Any] | None, values: Sequence[Any], *, omissible: bool
) -> tuple[Any] | None:
    """Return (a passing value,), (_ABSENT,) where leaving it out passes, or None."""
    if schema is not None:
        for value in values:
            for candidate in _candidates(value):
                if _passes(candidate, schema, values):
                    return (candidate,)
    return (_ABSENT,) if omissible and "" in values else None


def _passes(value: Any, schema: Mapping[str, Any], values: Sequence[Any]) -> bool:
    try:
        return check_value(value, schema, values) == VALID
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError):
        return False


def _candidates(value: Any) -> Iterator[Any]:
    """Yield values that an accepted value may stand for: itself, or a dict of alternatives."""
    if isinstance(value, dict):
        yield _choose(value)
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        yield [_choose(item) if isinstance(item, dict) else item for item in value]
    if value == "":
        yield []
    yield value


def _choose(alternatives: Mapping[str, Any]) -> dict[str, Any]:
    """Take each key's first alternative; a key whose only alternative is "" is left out."""
    chosen = {}
    for key, options in alternatives.items():
        wanted = [option for option in options if option != ""] if options else []
        if wanted:
            chosen[key] = wanted[0]
    return chosen
