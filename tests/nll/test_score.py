"""Scorer raw/1: a row is observed only with every forced token proved to have come back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalharness.nll import SUITE
from evalharness.nll.score import row_json, score_tokens
from evalharness.types import NllRow
from tests.nll.answers import (
    CONTINUATION,
    PROMPT,
    answer,
    case,
    chunk,
    context,
    decoded,
    prefilled,
    stream,
)

LOGPROBS = [-1.5, -0.25, -7.0]


def scored(body: str, *, mode: str = "decode", top: int = 0, **changes: Any) -> NllRow:
    """Score a body as the answer to the case's own request."""
    request = SUITE.request(case(), context(mode, top=top))
    return score_tokens(case(), answer(request, body, **changes))


def test_decode_in_order() -> None:
    row = scored(decoded(LOGPROBS))
    assert (row.outcome, row.reason) == ("observed", "valid")
    assert row.token_ids == tuple(CONTINUATION) and row.logprobs == tuple(LOGPROBS)


def test_several_tokens_in_one_chunk() -> None:
    first = chunk(CONTINUATION[:1], LOGPROBS[:1], prompt_token_ids=PROMPT)
    rest = chunk(CONTINUATION[1:], LOGPROBS[1:], finish_reason="length")
    row = scored(stream(first, rest, {"choices": [], "usage": {"prompt_tokens": 3}}))
    assert row.logprobs == tuple(LOGPROBS)


def test_prefill_is_aligned_with_the_continuation() -> None:
    ids = PROMPT + CONTINUATION
    values = [None, -9.0, -8.0, *LOGPROBS]
    entries = [
        None if v is None else {"5": {"logprob": -0.1}, str(i): {"logprob": v, "rank": 2}}
        for i, v in zip(ids, values, strict=True)
    ]
    row = scored(prefilled(entries, ids), mode="prefill", top=1)
    assert row.outcome == "observed" and row.logprobs == tuple(LOGPROBS)
    assert json.loads(row.top_logprobs)[0] == {"5": -0.1, str(CONTINUATION[0]): LOGPROBS[0]}


@pytest.mark.parametrize("bad", [None, -9999.0, -10000.0, float("-inf"), float("nan"), "x", True])
def test_null_and_clamped_values_are_counted_and_never_summed(bad: object) -> None:
    body = decoded([-1.5, None, -7.0]).replace("null", json.dumps(bad))
    row = scored(body)
    assert row.outcome == "observed" and row.logprobs == (-1.5, None, -7.0)
    stored = row_json(row, response_digest="0" * 16)
    assert stored["clamped"] == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (decoded([-1.0, -1.0, -1.0], ids=[6004, 3, 17]), "not_forced:position 1 wanted 2 got 3"),
        (decoded([-1.0, -1.0], ids=[6004, 2]), "token_count:2 of 3"),
        (decoded([-1.0] * 4, ids=[*CONTINUATION, 9]), "token_count:4 of 3"),
        (decoded(LOGPROBS, prompt=[1, 4093, 199]), "prompt_mismatch"),
        (stream(chunk(CONTINUATION, LOGPROBS)), "no_prompt_token_ids"),
        (decoded(LOGPROBS).replace("data: [DONE]\n\n", ""), "torn_stream"),
        (stream({"error": {"message": "engine dead"}}), "stream_error"),
        ("data: {\n\ndata: [DONE]\n\n", "malformed_body:json"),
        ("", "torn_stream"),
    ],
)
def test_anything_else_is_unobserved_with_the_reason(body: str, reason: str) -> None:
    row = scored(body)
    assert (row.outcome, row.reason) == ("unobserved", reason)
    assert row.token_ids == () and row.logprobs == ()


def test_prefill_without_all_positions_is_unobserved() -> None:
    row = scored(prefilled([None], [1]), mode="prefill")
    assert row.reason == "prompt_mismatch"
    row = scored(prefilled([None], PROMPT + CONTINUATION), mode="prefill")
    assert row.reason == "malformed_body:prompt_logprobs"


def test_failed_exchanges_keep_their_kind() -> None:
    assert scored("", status="timeout").reason == "timeout"
    assert scored("", status="transport_error").reason == "transport_error"
    assert scored("{}", status="http_error", http_code=400).reason == "http_error:400"


def test_an_answer_to_another_case_is_unobserved() -> None:
    request = SUITE.request(case(continuation=[5, 5]), context("decode"))
    row = score_tokens(case(), answer(request, decoded([-1.0, -1.0], ids=[5, 5])))
    assert row.reason == "request_mismatch:continuation"
    request = SUITE.request(case(prompt=[1, 2]), context("decode"))
    row = score_tokens(case(), answer(request, decoded(LOGPROBS, prompt=[1, 2])))
    assert row.reason == "request_mismatch:prompt"


@given(st.text(max_size=200), st.sampled_from(["decode", "prefill"]))
def test_no_body_raises(body: str, mode: str) -> None:
    assert scored(body, mode=mode).outcome == "unobserved"


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4),
        lambda s: (
            st.lists(s)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "token_ids",
                        "logprobs",
                        "prompt_token_ids",
                        "top_logprobs",
                        "token_logprobs",
                        "prompt_logprobs",
                    ]
                ),
                s,
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_raises(value: object) -> None:
    text = json.dumps(value)
    assert scored(text, mode="prefill").outcome == "unobserved"
    assert scored(f"data: {text}\n\ndata: [DONE]\n\n").outcome == "unobserved"
