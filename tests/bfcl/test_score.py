"""BFCL responses to scores: names mapped back, unpassable golds, the two readings apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalharness.bfcl import SUITE
from evalharness.bfcl.names import api_names
from evalharness.data import KNOWN, locate, rows
from evalharness.types import Case
from tests.bfcl.items import cases
from tests.test_chat import response
from tools.stored_run import bfcl_oracle, chat_body

OFFICIAL, CORRECTED = SUITE.scorers["official/1"], SUITE.scorers["corrected/1"]


def _case(name: str) -> Case:
    return next(case for case in cases() if case.case_id == name)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.case_id)
def test_the_oracle_is_correct_and_the_model_s_faults_are_wrong(case: Case) -> None:
    for scorer in (OFFICIAL, CORRECTED):
        score = scorer(case, response(bfcl_oracle(case)))
        assert (score.outcome, score.reason) == ("correct", "valid")
        detail = json.loads(score.detail)
        assert (detail["output_tokens"], detail["truncated"]) == (7, False)
        cut = scorer(case, response(chat_body("...", finish_reason="length")))
        assert (cut.outcome, cut.reason) == ("wrong", "truncated")
        assert json.loads(cut.detail)["truncated"] is True


@pytest.mark.parametrize("status", ["http_error", "transport_error", "timeout"])
@pytest.mark.parametrize("name", ["irrelevance_w1", "simple_python_w1"])
def test_a_failed_request_is_never_a_verdict(name: str, status: str) -> None:
    """The official tool calls a transport error on an irrelevance case correct."""
    for scorer in (OFFICIAL, CORRECTED):
        score = scorer(_case(name), response("", status=status, http_code=None))
        assert (score.outcome, score.reason) == ("unobserved", status)


def test_only_offered_names_are_mapped_back() -> None:
    case, arguments = _case("simple_python_w1"), '{"city": "Oslo", "days": 3}'
    for name, outcome in (("weather_get", "correct"), ("weather.get", "wrong"), ("get", "wrong")):
        body = chat_body(None, calls=[(name, arguments)], finish_reason="tool_calls")
        assert OFFICIAL(case, response(body)).outcome == outcome


def test_api_names_are_legal_and_one_to_one() -> None:
    names = ["a.b", "a_b", "a b", "é", "x" * 80, "x" * 81, "", "plain"]
    mapped = api_names(names)
    assert mapped["a_b"] == "a_b"
    assert mapped["plain"] == "plain"
    assert len(set(mapped.values())) == len(names)
    assert all(1 <= len(name) <= 64 and name.isascii() for name in mapped.values())
    assert all(name.replace("_", "a").replace("-", "a").isalnum() for name in mapped.values())


@pytest.mark.parametrize(
    ("arguments", "official", "rule"),
    [('{"x": ', "correct", "C2"), ("[]", "correct", "C2"), ("{}", "wrong", None)],
)
def test_malformed_calls_on_irrelevance(arguments: str, official: str, rule: str | None) -> None:
    case = _case("irrelevance_w1")
    body = chat_body(None, calls=[("math_mean", arguments)], finish_reason="tool_calls")
    assert OFFICIAL(case, response(body)).outcome == official
    score = CORRECTED(case, response(body))
    assert score.outcome == "wrong"
    detail = json.loads(score.detail)
    assert (detail["rule"][:2] if "rule" in detail else None) == rule


def test_call_markup_left_in_the_text() -> None:
    body = chat_body('<tool_call>\n{"name": "math_mean", "arguments": {"numb')
    case = _case("irrelevance_w1")
    assert OFFICIAL(case, response(body)).outcome == "correct"
    score = CORRECTED(case, response(body))
    assert (score.outcome, score.reason) == ("wrong", "malformed_call:unparsed_markup")
    assert json.loads(score.detail)["rule"].startswith("C3")


def _greedy_case() -> tuple[Case, str]:
    parameters = {"type": "dict", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    row: dict[str, Any] = {
        "id": "parallel_greedy",
        "question": [[{"role": "user", "content": "?"}]],
        "function": [{"name": "f", "description": "f", "parameters": parameters}],
        "ground_truth": [{"f": {"x": [1, 2]}}, {"f": {"x": [1]}}],
    }
    calls = [("f", '{"x": 1}'), ("f", '{"x": 2}')]
    body = chat_body(None, calls=calls, finish_reason="tool_calls")
    return SUITE.to_case(row["id"], row), body


def test_first_fit_and_perfect_matching_differ_and_say_so() -> None:
    case, body = _greedy_case()
    assert OFFICIAL(case, response(body)).outcome == "wrong"
    score = CORRECTED(case, response(body))
    assert score.outcome == "correct"
    detail = json.loads(score.detail)
    assert detail["rule"].startswith("C1")
    assert detail["official"] == "parallel_function_checker_no_order:cannot_find_match"


def test_the_four_unpassable_golds_and_no_other_are_excluded() -> None:
    if locate(KNOWN["bfcl"]) is None:
        pytest.skip("bfcl-eval's wheel is not here: run `evalharness data fetch bfcl`")
    excluded = []
    for row_id, row in rows(KNOWN["bfcl"]).items():
        case = SUITE.to_case(row_id, row)
        body = bfcl_oracle(case)
        score = CORRECTED(case, response(body))
        if score.reason == "excluded:unpassable_gold":
            assert json.loads(score.detail)["excluded"] is True
            excluded.append(row_id)
        else:
            assert score.outcome == OFFICIAL(case, response(body)).outcome == "correct", row_id
    assert excluded == [
        "live_simple_106-63-0",
        "live_simple_112-68-0",
        "live_multiple_862-181-3",
        "live_multiple_964-207-0",
    ]
