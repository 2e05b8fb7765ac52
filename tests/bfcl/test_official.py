"""Development test: fresh mutations must get bfcl-eval's own tag, not only its verdict."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from evalharness.bfcl.score import score_vector
from evalharness.data import KNOWN, locate, rows
from tests.bfcl.items import vector_items
from tools.bfcl_reference.mutations import mutated_rows
from tools.bfcl_reference.official import Checker, load_checker

TYPES = ("string", "integer", "float", "boolean", "array", "tuple", "dict", "any")


@pytest.fixture(scope="module")
def checker() -> Checker:
    wheel = locate(KNOWN["bfcl"])
    if wheel is None:
        pytest.skip("bfcl-eval's wheel is not here: run `evalharness data fetch bfcl`")
    return load_checker(wheel)


def _compare(check: Checker, found: list[dict[str, Any]]) -> Counter[str]:
    tags: Counter[str] = Counter()
    for row in found:
        expected, ours = check(row), score_vector(row, "official/1")
        tags[expected] += 1
        if not expected.startswith("raises:"):
            assert ours["reason"] == expected, row
            assert (ours["outcome"] == "correct") == (expected == "valid")
    return tags


def test_mutations_of_the_data_set(checker: Checker) -> None:
    items = [
        {
            "category": row_id.rpartition("_")[0],
            "functions": row["function"],
            "gold": row.get("ground_truth"),
        }
        for row_id, row in rows(KNOWN["bfcl"]).items()
        if not row_id.startswith("live_relevance")
    ]
    tags = _compare(checker, list(mutated_rows(items, seed=20261129, count=20_000)))
    # A generator that only makes valid or only invalid rows would prove little.
    assert 0.3 < tags["valid"] / 20_000 < 0.7
    assert len(tags) >= 15


def test_mutations_of_own_items(checker: Checker) -> None:
    items = [item for item in vector_items() if item["category"] != "live_relevance"]
    _compare(checker, list(mutated_rows(items, seed=3, count=4000)))


def test_random_types_golds_and_values(checker: Checker) -> None:
    """Shapes that the data set has not: any declared type against any accepted values."""
    rng = Random(11)
    tags = _compare(checker, [_random_row(rng) for _ in range(20_000)])
    assert tags["valid"] > 2000


def _random_row(rng: Random) -> dict[str, Any]:
    schema = {"type": rng.choice(TYPES), "items": {"type": rng.choice(TYPES)}}
    accepted = [_value(rng, 0) for _ in range(rng.randrange(4))]
    value = rng.choice(accepted) if accepted and rng.random() < 0.6 else _value(rng, 0)
    parameters = {"type": "dict", "properties": {"p": schema}, "required": []}
    return {
        "category": rng.choice(["simple_python", "multiple", "parallel"]),
        "functions": [{"name": "f", "parameters": parameters}],
        "gold": [{"f": {"p": accepted}}],
        "calls": [{"name": "f", "arguments": {"p": value}}],
    }


def _value(rng: Random, depth: int) -> Any:
    kind = rng.randrange(10 if depth < 3 else 7)
    if kind < 7:
        return rng.choice([0, 1, 5, 1.0, 0.5, True, False, None, "", "a", "A b", "a.b", " ", "1"])
    if kind < 9:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {rng.choice("abc"): _value(rng, depth + 1) for _ in range(rng.randrange(3))}
