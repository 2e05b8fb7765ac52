"""Rows of prompt shapes as cases. The prompt's token ids are drawn when the request is made.

A row: {"prompt_tokens": n, "lowest_id": a, "highest_id": b}. The ids lie from a to b, both
included, so that one row suits every vocabulary that is larger than b.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalharness.errors import ManifestError
from evalharness.types import Case, canonical_json

SUITE_NAME = "speed"
MOST_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True)
class Shape:
    """How long a prompt is, in tokens, and between which ids its tokens lie."""

    prompt_tokens: int
    lowest_id: int
    highest_id: int


def to_case(row_id: str, row: Mapping[str, Any]) -> Case:
    """Return the case of one row. Raises ManifestError where a number is missing or senseless."""
    shape = {name: row.get(name) for name in ("prompt_tokens", "lowest_id", "highest_id")}
    count, low, high = shape.values()
    sound = (
        type(count) is int
        and type(low) is int
        and type(high) is int
        and 1 <= count <= MOST_TOKENS
        and 0 <= low < high < 1 << 31
    )
    if not sound:
        raise ManifestError(
            f"speed case {row_id}: expected 1 <= prompt_tokens <= {MOST_TOKENS} and "
            f"0 <= lowest_id < highest_id, found {shape}; restore the data file"
        )
    return Case(
        suite=SUITE_NAME,
        case_id=row_id,
        cluster_id=row_id,
        prompt=canonical_json(shape),
        expected=canonical_json({}),
    )


def shape_of(case: Case) -> Shape:
    """Return the shape of a case made by `to_case`."""
    return Shape(**json.loads(case.prompt))
