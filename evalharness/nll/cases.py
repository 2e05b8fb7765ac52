"""Rows of fixed continuations (token ids) as cases.

A row: {"prompt_token_ids": [...], "continuation_token_ids": [...], "cluster_id"?: str,
"origin"?: {...}, "tokenizer_sha256"?: hex}. Token ids, never text: text round trips split
tokens differently, above all at the boundary of prompt and continuation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalharness.errors import ManifestError
from evalharness.types import Case, canonical_json

SUITE_NAME = "nll"


@dataclass(frozen=True, slots=True)
class Tokens:
    """A case's token ids. `prompt` and `continuation` both have one token or more."""

    prompt: tuple[int, ...]
    continuation: tuple[int, ...]


def to_case(row_id: str, row: Mapping[str, Any]) -> Case:
    """Return the case of one row; its cluster is the document it was cut from, if it says so.

    Raises ManifestError where a list of ids is missing, empty or not of non-negative integers:
    without a prompt token the first token has no log-probability, and without a continuation
    token there is nothing to score.
    """
    prompt = _ids(row_id, row, "prompt_token_ids")
    continuation = _ids(row_id, row, "continuation_token_ids")
    cluster = row.get("cluster_id", row_id)
    if not isinstance(cluster, str):
        raise ManifestError(f"nll case {row_id}: cluster_id {cluster!r}, expected a text")
    return Case(
        suite=SUITE_NAME,
        case_id=row_id,
        cluster_id=cluster,
        prompt=canonical_json({"token_ids": prompt}),
        expected=canonical_json({"token_ids": continuation}),
    )


def tokens_of(case: Case) -> Tokens:
    """Return the token ids of a case made by `to_case`."""
    return Tokens(
        prompt=tuple(json.loads(case.prompt)["token_ids"]),
        continuation=tuple(json.loads(case.expected)["token_ids"]),
    )


def _ids(row_id: str, row: Mapping[str, Any], key: str) -> list[int]:
    found = row.get(key)
    if not isinstance(found, list) or not all(type(one) is int and one >= 0 for one in found):
        raise ManifestError(
            f"nll case {row_id}: {key} is {str(found)[:60]}, expected a list of token ids; "
            "capture the case again"
        )
    if not found:
        raise ManifestError(
            f"nll case {row_id}: {key} is empty, expected one token or more; leave the case out"
        )
    return found
