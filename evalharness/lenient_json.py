"""JSON as servers send it: any value that a parser can read, or None."""

from __future__ import annotations

import json
from typing import Any

import orjson


def loads(text: str) -> Any:
    """Return the JSON value of a text, or None where it is none.

    The fast parser comes first, bodies are many; it refuses lone surrogates and NaN, which a
    lenient server may send.
    """
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
