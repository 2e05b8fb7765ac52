"""JSON by the RFC 8259 grammar, without equal member names: what a model must have written.

The standard library's scanner follows the grammar except for NaN and infinities; those and
duplicated names are refused here. Integers and floats stay apart; integers are exact.
"""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

_SAFE_DIGITS = 4000  # below the interpreter's default limit for str -> int (4300)


class JsonFault(ValueError):
    """The text is not one strict JSON text; `kind` is a short tag of the first fault."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def parse_strict(text: str) -> Any:
    """Return the value of `text`, white space at both ends allowed.

    Raises JsonFault with kind empty, syntax, trailing_data, duplicate_key, nan_or_infinity,
    not_utf8 (a raw lone surrogate), number_too_long or too_deep (the interpreter's limits).
    """
    try:
        return _STRICT.decode(text)
    except JsonFault:
        raise
    except json.JSONDecodeError as error:
        raise JsonFault(_syntax_kind(text, error)) from None
    except RecursionError:
        raise JsonFault("too_deep") from None
    except ValueError:  # str -> int beyond the interpreter's digit limit
        raise JsonFault("number_too_long") from None


def check_utf8(text: str) -> None:
    """Raise JsonFault not_utf8 if `text` holds a raw lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise JsonFault("not_utf8") from None


def parse_int_any(digits: str) -> int:
    """Return the integer of a JSON number of any length; a `parse_int` hook for json.

    Halving keeps every conversion below the interpreter's digit limit and the cost well below
    the square of the length.
    """
    if len(digits) <= _SAFE_DIGITS:
        return int(digits)
    if digits.startswith("-"):
        return -parse_int_any(digits[1:])
    half = len(digits) // 2
    scale: int = 10 ** (len(digits) - half)
    return parse_int_any(digits[:half]) * scale + parse_int_any(digits[half:])


def allow_any_integer() -> None:
    """Lift the digit limit of this process; for a worker that is killed when it takes too long."""
    sys.set_int_max_str_digits(0)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise JsonFault("duplicate_key")
    return members


def _refuse_constant(_name: str) -> NoReturn:
    raise JsonFault("nan_or_infinity")


def _syntax_kind(text: str, error: json.JSONDecodeError) -> str:
    if not text.strip(" \t\r\n"):
        return "empty"
    return "trailing_data" if error.msg == "Extra data" else "syntax"


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
