"""The repository's own BFCL items, as cases and as vector rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evalharness.bfcl import SUITE
from evalharness.types import Case, RequestContext, Sampling

FIXTURES = Path(__file__).parent.parent / "fixtures" / "bfcl"
CONTEXT = RequestContext("m", "tools", Sampling(0.0, 1.0, 64), 7, 0, "bfcl/1")


def rows() -> list[dict[str, Any]]:
    """Return the item rows, as the data source has them."""
    return [json.loads(line) for line in (FIXTURES / "items.jsonl").read_text().splitlines()]


def cases() -> list[Case]:
    """Return the items as cases."""
    return [SUITE.to_case(row["id"], row) for row in rows()]


def vector_items() -> list[dict[str, Any]]:
    """Return the items without calls: category, functions, gold."""
    return [
        {
            "category": row["id"].rpartition("_")[0],
            "functions": row["function"],
            "gold": row.get("ground_truth"),
        }
        for row in rows()
    ]
