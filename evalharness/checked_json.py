"""Read a JSON file of a run and hold it against its schema, with an error that says where."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match

from evalharness.errors import HarnessError

FORMATS = Path(__file__).parent / "formats"
# Larger numbers are damage, and overflow what is computed from them.
LARGEST = 1e15


def read_checked(file: Path, format_name: str, *, error: type[HarnessError]) -> dict[str, Any]:
    """Return the JSON object of a file that agrees with formats/<format_name>.schema.json.

    Raises `error` naming file, place and what was expected.
    """
    try:
        raw = file.read_bytes()
    except OSError as problem:
        raise error(f"{file}: {problem.strerror}; expected a {format_name} file") from problem
    return parse_checked(raw, format_name, name=str(file), error=error)


def parse_checked(
    raw: bytes, format_name: str, *, name: str, error: type[HarnessError]
) -> dict[str, Any]:
    """Return the JSON object in `raw`; see read_checked."""
    try:
        value = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise error(f"{name}: not JSON ({problem}); restore the file") from problem
    fault = format_problem(value, format_name)
    if fault is not None:
        raise error(f"{name}: {fault}; expected a {format_name} file; restore it")
    assert isinstance(value, dict)  # every format is an object
    return value


def format_problem(value: Any, format_name: str) -> str | None:
    """Return what is wrong with a JSON value under a format and where, None if nothing is."""
    worst = best_match(_validator(format_name).iter_errors(value))
    if worst is None:
        return None
    place = "/".join(str(part) for part in worst.absolute_path) or "the whole file"
    return f"{_short(place)}: {_short(worst.message)}"


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


def _short(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:157]}..."


def _is_integer(_checker: object, value: object) -> bool:
    return type(value) is int and abs(value) <= LARGEST


def _is_number(_checker: object, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and abs(value) <= LARGEST


@lru_cache(maxsize=16)
def _validator(name: str) -> jsonschema.protocols.Validator:
    schema = json.loads((FORMATS / f"{name}.schema.json").read_text(encoding="utf-8"))
    checker = jsonschema.Draft202012Validator.TYPE_CHECKER
    strict = checker.redefine("integer", _is_integer).redefine("number", _is_number)
    # the stubs leave `extend` untyped
    extend: Callable[..., type[jsonschema.protocols.Validator]] = jsonschema.validators.extend
    return extend(jsonschema.Draft202012Validator, type_checker=strict)(schema)
