"""Verdicts on the vector files equal the official ones, row by row.

Files named <suite>_public.jsonl are read from the folder EVALHARNESS_VECTORS names; the
repository's own set in tests/fixtures is always read.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from evalharness.registry import suite_named
from evalharness.strict_json import parse_int_any

FIXTURES = Path(__file__).parent / "fixtures"
ROWS = {"bfcl": 1200, "schema": 712, "gsm8k": 197}
READINGS = ("strict", "flexible", "numeric")
ANSWERS = {"expected", "why", *READINGS}


def _read(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line, parse_int=parse_int_any) for line in file]


def _mistakes(suite_name: str, rows: list[dict[str, Any]]) -> list[Any]:
    suite = suite_named(suite_name)
    assert suite.score_vector is not None
    wrong = []
    for number, row in enumerate(rows):
        asked = {key: value for key, value in row.items() if key not in ANSWERS}
        asked["id"] = f"row-{number}"  # a verdict comes from the rules, never from the id
        found = suite.score_vector(asked, suite.default_scorer)
        if suite_name == "gsm8k":
            right = all(found[name] == row[name] for name in READINGS)
            right = right and (found["outcome"] == "correct") == row["strict"]
        else:
            right = found["outcome"] == ("correct" if row["expected"] else "wrong")
        if not right:
            wrong.append((row["id"], found))
    return wrong


@pytest.mark.parametrize("suite", ROWS)
def test_public_vectors(suite: str) -> None:
    folder = os.environ.get("EVALHARNESS_VECTORS")
    if not folder:
        pytest.skip("EVALHARNESS_VECTORS is unset: set it to the folder with the vector files")
    rows = _read(Path(folder) / f"{suite}_public.jsonl")
    Random(5).shuffle(rows)
    assert len(rows) == ROWS[suite]
    assert _mistakes(suite, rows) == []


@pytest.mark.parametrize("suite", ROWS)
def test_own_vectors(suite: str) -> None:
    rows = _read(FIXTURES / suite / "vectors.jsonl")
    assert len(rows) >= 30
    assert _mistakes(suite, rows) == []


@pytest.mark.parametrize("suite", ["bfcl", "schema"])
def test_own_vectors_hold_both_verdicts(suite: str) -> None:
    """A scorer that always says the same cannot pass."""
    expected = [row["expected"] for row in _read(FIXTURES / suite / "vectors.jsonl")]
    assert 0.25 < sum(expected) / len(expected) < 0.75
