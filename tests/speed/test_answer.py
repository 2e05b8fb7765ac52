"""What a stored response says of its tokens, and whether it has the forced length."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalharness.chat import Unobserved
from evalharness.errors import ManifestError
from evalharness.speed import SUITE
from evalharness.speed.answer import Answer, read_answer
from evalharness.speed.request import prompt_ids
from evalharness.speed.score import score_length
from evalharness.types import Case, RequestContext, Response, Sampling
from tests.speed.simulated import stream_body

ROW = {"prompt_tokens": 300, "lowest_id": 1000, "highest_id": 29999}


def case(name: str = "in_0") -> Case:
    """One case of 300 tokens."""
    return SUITE.to_case(name, ROW)


def response(body: str, **changes: Any) -> Response:
    """A response to a request that forces 4 tokens."""
    fields: dict[str, Any] = {
        "case_id": "in_0", "replicate": 0, "request_digest": "0" * 64,
        "endpoint": "/v1/completions", "request_body": '{"max_tokens":4}', "status": "ok",
        "http_code": 200, "body": body,
        "body_encoding": "utf-8", "error": None, "sent_ns": 1, "first_byte_ns": 2, "done_ns": 9,
        "in_flight": 1,
    }  # fmt: skip
    return Response(**{**fields, **changes})


def events(*values: dict[str, Any]) -> str:
    """A stream of these events, ended."""
    return "".join(f"data: {json.dumps(v)}\n\n" for v in values) + "data: [DONE]\n\n"


def token(**more: Any) -> dict[str, Any]:
    """One event with a choice."""
    return {"model": "m", "choices": [{"index": 0, "text": "x", "finish_reason": None}], **more}


def test_a_stream_with_running_usage_counts_each_event() -> None:
    body = events(
        token(usage={"completion_tokens": 1}),
        {"model": "m", "choices": [], "usage": {"completion_tokens": 1}},
        token(usage={"completion_tokens": 4}),
    )
    assert read_answer(response(body)) == Answer(4, None, True, (0, 2), (1, 3))


def test_without_running_usage_an_event_is_a_token_if_the_total_agrees() -> None:
    total = {"model": "m", "choices": [], "usage": {"completion_tokens": 3}}
    assert read_answer(response(events(token(), token(), token(), total))) == Answer(
        3, None, True, (0, 1, 2), (1, 1, 1)
    )
    # two tokens in one event would make a step look half as long
    unknown = read_answer(response(events(token(), token(), total)))
    assert unknown == Answer(3, None, True)


def test_token_ids_count_where_usage_is_absent() -> None:
    first = {"model": "m", "choices": [{"index": 0, "text": "", "token_ids": [5, 6]}]}
    assert read_answer(response(events(first, token()))) == Answer(None, None, True, (0, 1), (2, 1))


def test_a_whole_body_is_not_streamed() -> None:
    body = {"choices": [{"finish_reason": "length"}], "usage": {"completion_tokens": 4}}
    assert read_answer(response(json.dumps(body))) == Answer(4, "length", False)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (stream_body(4).replace("data: [DONE]\n\n", ""), "stream_ended_early"),
        (events(token(), {"error": {"message": "x"}}), "server_error_event"),
        ("data: nothing\n\ndata: [DONE]\n\n", "bad_body:bad_event"),
        ('{"choices": []}', "bad_body:no_choices"),
        ("", "bad_body:not_json"),
    ],
)
def test_what_was_never_seen_whole_says_why(body: str, reason: str) -> None:
    assert read_answer(response(body)) == Unobserved(reason)


@given(st.text(max_size=60), st.sampled_from(["ok", "timeout", "http_error"]))
def test_no_body_raises(body: str, status: Any) -> None:
    for text in (body, f"data: {body}\n\ndata: [DONE]\n\n", f'{{"choices": [{{"a": {body}}}]}}'):
        score_length(case(), response(text, status=status))


@pytest.mark.parametrize(
    ("body", "outcome", "reason"),
    [
        (stream_body(4), "correct", "valid"),
        (stream_body(3), "wrong", "length:3 of 4"),
        (stream_body(4, usage=False), "correct", "valid"),
        (events(token()), "unobserved", "length_unknown"),
    ],
)
def test_the_score_is_whether_the_length_was_forced(body: str, outcome: str, reason: str) -> None:
    score = score_length(case(), response(body))
    assert (score.outcome, score.reason) == (outcome, reason)


def test_a_request_that_forces_nothing_is_never_right() -> None:
    found = score_length(case(), dataclasses.replace(response(stream_body(4)), request_body="[]"))
    assert found.outcome == "wrong"


def test_prompts_are_deterministic_independent_and_in_the_vocabulary() -> None:
    one, two = prompt_ids(case("a"), 7), prompt_ids(case("b"), 7)
    assert one == prompt_ids(case("a"), 7)
    assert len(one) == 300
    assert one != two
    assert one != prompt_ids(case("a"), 8)
    assert all(1000 <= token_id <= 29999 for token_id in one + two)
    # pinned: another machine or library version must draw the same prompt
    assert one[:4] == [1130, 22178, 27266, 18077]


def test_the_request_forces_its_length_and_refuses_our_own_fields() -> None:
    context = RequestContext("m", "stream", Sampling(0.0, 1.0, 256), 7, 0, "speed/1")
    body = json.loads(SUITE.request(case(), context).body_json)
    assert (body["max_tokens"], body["ignore_eos"], body["stream"]) == (256, True, True)
    clash = dataclasses.replace(context, sampling=Sampling(0.0, 1.0, 4, '{"max_tokens":9}'))
    with pytest.raises(ManifestError, match="max_tokens"):
        SUITE.request(case(), clash)


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_tokens": 0},
        {"prompt_tokens": True},
        {"lowest_id": -1},
        {"highest_id": 1000},
        {"lowest_id": None},
    ],
)
def test_a_senseless_shape_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match="in_0"):
        SUITE.to_case("in_0", {**ROW, **change})
