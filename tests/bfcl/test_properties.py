"""Scorers never raise, do not depend on member order, and put an oracle above its corruption."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalharness.bfcl.gold import oracle_calls
from evalharness.bfcl.score import SCORERS, score_vector
from evalharness.errors import ScoreError
from tests.bfcl.items import cases, vector_items
from tests.test_chat import response
from tools.bfcl_reference.mutations import mutated_rows
from tools.stored_run import chat_body

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)
ITEMS = [item for item in vector_items() if item["gold"]]


@given(st.dictionaries(st.sampled_from(["category", "functions", "gold", "calls"]), JSON))
def test_any_row_is_judged_or_refused(row: dict[str, Any]) -> None:
    for scorer in SCORERS:
        try:
            assert score_vector(row, scorer)["outcome"] in ("correct", "wrong")
        except ScoreError as error:
            assert "field " in str(error)


@given(
    st.sampled_from(vector_items()),
    st.lists(st.fixed_dictionaries({"name": JSON, "arguments": JSON | st.text()}), max_size=3),
    JSON,
)
def test_any_calls_are_judged(item: dict[str, Any], calls: list[Any], functions: Any) -> None:
    for scorer in SCORERS:
        assert score_vector({**item, "calls": calls}, scorer)["outcome"] in ("correct", "wrong")
        if isinstance(functions, list):
            row = {**item, "functions": functions, "calls": calls}
            assert score_vector(row, scorer)["outcome"] in ("correct", "wrong")


@given(st.sampled_from(cases()), st.text(max_size=30), JSON)
def test_any_response_is_scored(case: Any, text: str, value: Any) -> None:
    bodies = [text, chat_body(text, calls=[(text, text)]), chat_body(None, finish_reason=text)]
    for scorer in SCORERS.values():
        for body in bodies:
            assert scorer(case, response(body)).outcome in ("correct", "wrong", "unobserved")


def _reordered(value: Any, rng: Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: _reordered(value[key], rng) for key in keys}
    return [_reordered(item, rng) for item in value] if isinstance(value, list) else value


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_member_order_changes_no_verdict(seed: int) -> None:
    for row in mutated_rows(vector_items(), seed=seed, count=5):
        other = _reordered(row, Random(seed))
        for scorer in SCORERS:
            first, second = score_vector(row, scorer), score_vector(other, scorer)
            assert first["outcome"] == second["outcome"]


def _oracle(item: dict[str, Any]) -> list[dict[str, Any]]:
    calls = oracle_calls(item["functions"], item["gold"])
    assert calls is not None
    return [{"name": name, "arguments": dict(arguments)} for name, arguments in calls]


CORRUPTIONS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "no call": lambda calls: calls.clear(),
    "one call more": lambda calls: calls.append(copy.deepcopy(calls[0])),
    "other name": lambda calls: calls[0].update(name="other"),
    "required argument gone": lambda calls: calls[0]["arguments"].pop(
        next(iter(calls[0]["arguments"]))
    ),
    "unknown argument": lambda calls: calls[0]["arguments"].update(unknown=1),
    "null": lambda calls: calls[0]["arguments"].update({next(iter(calls[0]["arguments"])): None}),
    "other value": lambda calls: calls[0]["arguments"].update(
        {next(iter(calls[0]["arguments"])): "somewhere else"}
    ),
    "malformed": lambda calls: calls[0].update(arguments='{"a": '),
}


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("corruption", CORRUPTIONS)
@pytest.mark.parametrize("index", range(len(ITEMS)))
def test_the_oracle_beats_its_corruption(index: int, corruption: str, scorer: str) -> None:
    calls = _oracle(ITEMS[index])
    assert score_vector({**ITEMS[index], "calls": calls}, scorer)["outcome"] == "correct"
    CORRUPTIONS[corruption](calls)
    assert score_vector({**ITEMS[index], "calls": calls}, scorer)["outcome"] == "wrong"
