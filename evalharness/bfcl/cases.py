"""Rows of BFCL v4's single-turn Python set as cases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evalharness.errors import ManifestError
from evalharness.types import Case, canonical_json

CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
)


def category_of(row_id: str) -> str:
    """Return the category that starts a BFCL item id (`live_simple_3-0-1` -> `live_simple`).

    Raises ManifestError for a category outside the single-turn Python set.
    """
    category = row_id.rpartition("_")[0]
    if category not in CATEGORIES:
        raise ManifestError(
            f"bfcl case {row_id}: category {category!r} is not one of {', '.join(CATEGORIES)}; "
            "expected an id such as simple_python_0; correct the manifest"
        )
    return category


def to_case(row_id: str, row: Mapping[str, Any]) -> Case:
    """Return the case of a row: the question's `id`, `question`, `function` and `ground_truth`.

    The function documents are kept as JSON text: the order of their members reaches the model.
    Raises ManifestError on a row that lacks one of them.
    """
    category = category_of(row_id)
    question, functions = row.get("question"), row.get("function")
    golds = row.get("ground_truth")
    if not isinstance(question, list) or len(question) != 1 or not isinstance(functions, list):
        raise ManifestError(
            f"bfcl case {row_id}: expected `question` with one turn and a list `function`, found "
            f"{sorted(row)}; restore the data file"
        )
    if ("relevance" in category) != (golds is None):
        raise ManifestError(
            f"bfcl case {row_id}: ground_truth is {'absent' if golds is None else 'present'}; "
            "every category but the (ir)relevance ones has it; restore the data files"
        )
    prompt = {
        "category": category,
        "functions": json.dumps(functions, separators=(",", ":")),
        "messages": question[0],
    }
    return Case(
        suite="bfcl",
        case_id=row_id,
        cluster_id=row_id,
        prompt=canonical_json(prompt),
        expected=canonical_json({"gold": golds}),
    )
