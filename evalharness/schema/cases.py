"""Rows of JSONSchemaBench (`unique_id`, `json_schema`) as cases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evalharness.errors import ManifestError
from evalharness.types import Case, canonical_json


def to_case(row_id: str, row: Mapping[str, Any]) -> Case:
    """Return the case of one row; an optional `task` text says what the value should hold.

    The schema stays the source's own text: the order of its members reaches the model.
    Raises ManifestError where it is no JSON Schema text.
    """
    text, task = row.get("json_schema"), row.get("task")
    if not isinstance(text, str):
        raise ManifestError(
            f"schema case {row_id}: expected a text `json_schema`, found {sorted(row)}; restore "
            "the data file"
        )
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestError(
            f"schema case {row_id}: json_schema is not JSON ({error}); restore the data file"
        ) from None
    if not isinstance(schema, dict | bool):
        raise ManifestError(
            f"schema case {row_id}: expected an object or boolean as schema, found "
            f"{type(schema).__name__}; restore the data file"
        )
    return Case(
        suite="schema",
        case_id=row_id,
        cluster_id=row_id,
        prompt=canonical_json({"schema": text, "task": task if isinstance(task, str) else None}),
        expected=canonical_json({"schema": text}),
    )
