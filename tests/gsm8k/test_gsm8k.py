"""GSM8K: three readings stored, truncation apart, packaged problems sound."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalharness.data import KNOWN, rows
from evalharness.errors import ManifestError
from evalharness.gsm8k import SUITE
from evalharness.gsm8k.answers import read_answer
from evalharness.types import RequestContext, Sampling
from tests.test_chat import response
from tools.stored_run import chat_body

CASES = [SUITE.to_case(row_id, row) for row_id, row in rows(KNOWN["word_problems"]).items()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.case_id)
def test_packaged_answers_are_right_in_every_reading(case: Any) -> None:
    row = rows(KNOWN["word_problems"])[case.case_id]
    for scorer in SUITE.scorers.values():
        assert scorer(case, response(chat_body(row["answer"]))).outcome == "correct"
        wrong = row["answer"].rpartition("#### ")[0] + "#### 12345"
        assert scorer(case, response(chat_body(wrong))).outcome == "wrong"


def test_all_three_readings_are_stored_and_truncation_is_apart() -> None:
    case = SUITE.to_case("x", {"question": "?", "answer": "so\n#### 18"})
    scores = {
        name: scorer(case, response(chat_body("It is $18.00")))
        for name, scorer in SUITE.scorers.items()
    }
    assert {name: score.outcome for name, score in scores.items()} == {
        "strict/1": "wrong",
        "flexible/1": "wrong",
        "numeric/1": "correct",
    }
    assert scores["strict/1"].reason == "format_only"
    for score in scores.values():
        detail = json.loads(score.detail)
        assert (detail["strict"], detail["flexible"], detail["numeric"]) == (False, False, True)
    cut = SUITE.scorers["strict/1"](case, response(chat_body("Let", finish_reason="length")))
    assert (cut.outcome, cut.reason) == ("wrong", "truncated")
    assert json.loads(cut.detail)["truncated"] is True


def test_an_unobserved_reply_has_no_readings() -> None:
    score = SUITE.scorers["numeric/1"](CASES[0], response("", status="timeout", http_code=None))
    assert score.outcome == "unobserved"
    assert "numeric" not in json.loads(score.detail)


def test_the_request_is_a_chat_with_a_natural_end() -> None:
    context = RequestContext("m", "chat", Sampling(0.0, 1.0, 96, '{"top_k":5}'), 3, 0, "gsm8k/1")
    body = json.loads(SUITE.request(CASES[0], context).body_json)
    assert "stop" not in body
    assert (body["max_tokens"], body["top_k"], body["seed"]) == (96, 5, 3)


@given(st.text(), st.text(max_size=8))
def test_any_text_is_read(output: str, gold: str) -> None:
    read_answer(output, gold)


@given(st.integers(-(10**9), 10**9), st.text(alphabet="abc .,\n"))
def test_an_oracle_beats_its_corruption(value: int, prose: str) -> None:
    right = read_answer(f"{prose}\n#### {value}", str(value))
    assert (right.strict, right.flexible, right.numeric) == (True, True, True)
    wrong = read_answer(f"{prose}\n#### {value + 1}", str(value))
    assert (wrong.strict, wrong.flexible, wrong.numeric) == (False, False, False)


def test_a_megabyte_is_read_in_linear_time() -> None:
    """A quadratic reading of these texts would take hours, not a test's timeout."""
    for unit in ("9,", "#### ", "-", "$.", "1.", "9"):
        read_answer(unit * 300_000, "18")


@pytest.mark.parametrize("row", [{}, {"question": "?"}, {"question": "?", "answer": "18"}])
def test_bad_rows_are_refused(row: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match="gsm8k case x"):
        SUITE.to_case("x", row)
