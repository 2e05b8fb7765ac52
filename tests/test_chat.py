"""Replies read back from stored bodies: plain, streamed, broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalharness.chat import RawCall, Reply, Unobserved, read_reply
from evalharness.types import Response


def response(body: str, **changes: Any) -> Response:
    fields: dict[str, Any] = {
        "case_id": "c",
        "replicate": 0,
        "request_digest": "0" * 64,
        "endpoint": "/v1/chat/completions",
        "request_body": "{}",
        "status": "ok",
        "http_code": 200,
        "body": body,
        "body_encoding": "utf-8",
        "error": None,
        "sent_ns": 0,
        "first_byte_ns": 1,
        "done_ns": 2,
        "in_flight": 1,
    }
    return Response(**{**fields, **changes})


def _stream(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True) -> str:
    events = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if finish:
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    events.append({"choices": [], "usage": {"completion_tokens": 9}})
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join(lines) + ("data: [DONE]\n\n" if done else "")


def test_streamed_and_plain_replies_are_equal() -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": '{"a"'}}
    more = {"index": 0, "function": {"name": None, "arguments": ": 1}"}}
    other = {"index": 1, "function": {"name": "g", "arguments": "{}"}}
    streamed = read_reply(
        response(
            _stream(
                {"role": "assistant", "content": None},
                {"content": "a"},
                {"content": "b\u2028"},
                {"tool_calls": [call]},
                {"tool_calls": [more, other]},
                finish="tool_calls",
            )
        )
    )
    calls = [
        {"function": {"name": "f", "arguments": '{"a": 1}'}},
        {"function": {"name": "g", "arguments": "{}"}},
    ]
    message = {"content": "ab\u2028", "tool_calls": calls}
    choice = {"message": message, "finish_reason": "tool_calls"}
    body = json.dumps({"choices": [choice], "usage": {"completion_tokens": 9}})
    expected = Reply("ab\u2028", (RawCall("f", '{"a": 1}'), RawCall("g", "{}")), "tool_calls", 9)
    assert streamed == expected
    assert read_reply(response(body)) == expected


@pytest.mark.parametrize(
    ("body", "changes", "reason"),
    [
        ("", {"status": "timeout", "http_code": None}, "timeout"),
        ("", {"status": "transport_error", "http_code": None}, "transport_error"),
        ("boom", {"status": "http_error", "http_code": 503}, "http_error:503"),
        ("{}", {"status": "ok", "http_code": 500}, "http_error:500"),
        ("", {}, "bad_body:not_json"),
        ("{", {}, "bad_body:not_json"),
        ("{}", {}, "bad_body:no_choices"),
        ('{"choices":[]}', {}, "bad_body:no_choices"),
        ('{"choices":[{}]}', {}, "bad_body:no_message"),
        ("AA==", {"body_encoding": "base64"}, "bad_body:not_utf8"),
        (_stream({"content": "a"}, finish=None), {}, "stream_ended_early"),
        ('data: {"error": {"message": "x"}}\n\n', {}, "server_error_event"),
        ("data: [1]\n\n", {}, "bad_body:bad_event"),
        (_stream({"content": "a"}, finish="abort"), {}, "finish_reason:abort"),
    ],
)
def test_what_was_not_seen_whole_is_unobserved(
    body: str, changes: dict[str, Any], reason: str
) -> None:
    found = read_reply(response(body, **changes))
    assert isinstance(found, Unobserved)
    assert found.reason == reason


def test_lone_surrogate_escape_is_read() -> None:
    body = '{"choices":[{"message":{"content":"\\ud800"},"finish_reason":"stop"}]}'
    assert read_reply(response(body)) == Reply("\ud800", (), "stop", None)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["choices", "message", "content", "tool_calls", "function", "name", "arguments",
             "finish_reason", "usage", "completion_tokens", "delta", "index", "text"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(_JSON, st.booleans())
def test_reading_never_raises(value: Any, streamed: bool) -> None:
    text = json.dumps(value)
    body = f"data: {text}\n\ndata: [DONE]\n\n" if streamed else text
    assert isinstance(read_reply(response(body)), Reply | Unobserved)
