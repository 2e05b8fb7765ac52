"""Rows of the GSM8K test set (`question`, `answer`) as cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalharness.errors import ManifestError
from evalharness.types import Case, canonical_json

GOLD_MARK = "#### "


def to_case(row_id: str, row: Mapping[str, Any]) -> Case:
    """Return the case of one row; the gold is the text after the answer's last `#### `.

    Raises ManifestError where a field is missing or the answer names no final number.
    """
    question, answer = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not isinstance(answer, str):
        raise ManifestError(
            f"gsm8k case {row_id}: expected texts `question` and `answer`, found "
            f"{sorted(row)}; restore the data file"
        )
    reasoning, mark, gold = answer.rpartition(GOLD_MARK)
    if not mark or not gold.strip():
        raise ManifestError(
            f"gsm8k case {row_id}: the answer has no {GOLD_MARK!r} with a final number, found "
            f"{answer[-40:]!r}; restore the data file"
        )
    return Case(
        suite="gsm8k",
        case_id=row_id,
        cluster_id=row_id,
        prompt=canonical_json({"question": question}),
        expected=canonical_json({"gold": gold.strip(), "reasoning": reasoning}),
    )
