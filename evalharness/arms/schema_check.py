"""Check a document against its JSON Schema, and say it in the file's own terms."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator

from evalharness.arms.yaml_read import Document
from evalharness.errors import ArmsError
from evalharness.text import printable

_TYPE_NAMES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}
_LIMITS = {
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
    "minimum": "at least",
    "maximum": "at most",
    "minItems": "a list of at least",
}


def check_schema(document: Document) -> None:
    """Raise ArmsError naming every place where the document leaves formats/arms.schema.json."""
    text = resources.files("evalharness.formats").joinpath("arms.schema.json").read_text("utf-8")
    validator = Draft202012Validator(json.loads(text))
    lines = [
        line for error in validator.iter_errors(document.data) for line in _explain(error, document)
    ]
    if lines:
        raise ArmsError("\n".join(dict.fromkeys(lines)))


def _explain(error: Any, document: Document) -> Iterator[str]:
    path = tuple(error.absolute_path)
    where = document.where(path)
    at = ".".join(printable(str(part)) for part in path) or "the file"
    if error.validator == "additionalProperties" and isinstance(error.validator_value, bool):
        yield from _unknown_keys(error, document)
    elif error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        yield f"{where}: {at} has no {missing!r}; expected {_keys(error)}"
    elif error.validator == "pattern":
        yield (
            f"{document.where((*path, str(error.instance)))}: name {_show(error.instance)} in "
            f"{at}: expected a letter or digit, then letters, digits, '_.-', at most 41"
        )
    elif error.validator == "anyOf":
        yield from _any_of(error, document, f"{where}: {at}")
    elif error.validator == "type":
        found = f"{_show(error.instance)}{_quote(error)}"
        yield f"{where}: {at}: expected {_types(error)}, found {found}"
    elif error.validator in ("enum", "const"):
        wanted = error.validator_value if error.validator == "enum" else [error.validator_value]
        choices = " or ".join(str(choice) for choice in wanted)
        yield f"{where}: {at}: expected {choices}, found {_show(error.instance)}"
    elif error.validator == "minLength":
        yield f"{where}: {at}: expected text that is not empty, found {_show(error.instance)}"
    elif error.validator == "uniqueItems":
        yield f"{where}: {at}: expected each value once, found {_show(error.instance)}"
    elif error.validator == "minProperties":
        count = error.validator_value
        yield f"{where}: {at}: expected at least {count} entries, found {len(error.instance)}"
    else:
        limit = f"{_LIMITS.get(str(error.validator), error.validator)} {error.validator_value}"
        yield f"{where}: {at}: expected {limit}, found {_show(error.instance)}"


def _unknown_keys(error: Any, document: Document) -> Iterator[str]:
    known = sorted(error.schema.get("properties", {}))
    for key in error.instance:
        if key in known:
            continue
        path = (*error.absolute_path, key)
        close = difflib.get_close_matches(str(key), known, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        place = ".".join(printable(str(part)) for part in error.absolute_path) or "the file"
        yield (
            f"{document.where(path)}: unknown key {_show(key)} in {place}{hint}; "
            f"expected one of {', '.join(known)}"
        )


def _any_of(error: Any, document: Document, place: str) -> Iterator[str]:
    # The branch that got deepest, or failed on something other than its type, is the one meant.
    context = error.context or []
    deep = [sub for sub in context if sub.validator not in ("type", "const") or len(sub.path) > 0]
    if deep:
        yield from _explain(max(deep, key=lambda sub: len(sub.absolute_path)), document)
        return
    forms = [
        f"the word {sub.validator_value!r}" if sub.validator == "const" else _types(sub)
        for sub in context
        if sub.validator in ("type", "const")
    ]
    yield f"{place}: expected {' or '.join(forms)}, found {_show(error.instance)}"


def _types(error: Any) -> str:
    wanted = error.validator_value
    names = wanted if isinstance(wanted, list) else [wanted]
    return " or ".join(_TYPE_NAMES.get(str(name), str(name)) for name in names)


def _quote(error: Any) -> str:
    scalar = isinstance(error.instance, bool | int | float)
    return " (put it in quotes)" if scalar and error.validator_value == "string" else ""


def _keys(error: Any) -> str:
    return f"the keys {', '.join(error.validator_value)}"


def _show(value: Any) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = str(value)
    return printable(text if len(text) <= 60 else f"{text[:57]}...")
