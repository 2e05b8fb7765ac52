"""Replies and event streams: read alike however the bytes are cut, and never with an exception."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalharness import reply as module
from evalharness.reply import Reply, read_reply, read_stream
from evalharness.sse import EventClock, events

CHAT = "/v1/chat/completions"
EXAMPLES = 300 * int(os.environ.get("EVALHARNESS_FUZZ", "1"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "model", "usage", "finish_reason", "token_ids", "error", "delta", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
PIECES = ["data: x", "data", "da", "\n", "\r", "\r\n", "\n\n", ": c", "event: y", "data:", "\u2028"]


def ok(**more: object) -> str:
    choice = {"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 2, "completion_tokens": 1}
    return json.dumps({"model": "m", "choices": [choice], "usage": usage, **more})


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30), st.data())
def test_events_and_their_times_count_alike(parts: list[str], data: st.DataObject) -> None:
    body = "".join(parts)
    raw, clock, at = body.encode(), EventClock(), 0
    while at < len(raw):
        step = data.draw(st.integers(1, 7))
        clock.feed(raw[at : at + step], at)
        at += step
    assert len(clock.times_ns) == len(events(body))
    assert clock.times_ns == sorted(clock.times_ns)


def test_an_event_is_timed_when_it_is_complete() -> None:
    clock = EventClock()
    clock.feed(b"data: a\n", 1)
    assert clock.times_ns == []
    clock.feed(b"\ndata: b\n\n: ping\n\nda", 2)
    clock.feed(b"ta: [DONE]\r\n\r", 3)
    assert clock.times_ns == [2, 2, 3]
    clock.feed(b"\n", 4)
    assert clock.times_ns == [2, 2, 3]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text(max_size=200) | JSON.map(lambda value: json.dumps(value)))
def test_any_body_gives_a_reply_and_never_an_exception(body: str) -> None:
    for endpoint in (CHAT, "/elsewhere"):
        assert isinstance(read_reply(body, endpoint=endpoint, model="m"), Reply)
        assert isinstance(read_stream(body, endpoint=endpoint, model="m"), Reply)
        wrapped = f"data: {body}\n\ndata: [DONE]\n\n"
        assert isinstance(read_stream(wrapped, endpoint=endpoint, model="m"), Reply)


@settings(max_examples=EXAMPLES, deadline=None)
@given(JSON.map(lambda value: json.dumps(value)))
def test_the_short_way_reads_what_the_careful_way_reads(body: str) -> None:
    careful = module._read_carefully(body, CHAT, "m")
    assert read_reply(body, endpoint=CHAT, model="m") == careful


@pytest.mark.parametrize(
    "body",
    [
        ok(),
        ok(usage=None),
        ok(model="other"),
        ok(error={"message": "x"}),
        ok(error=None),
        ok(choices=[]),
        ok(usage={"a": 1e400}),
        ok(usage={"prompt_tokens": 10**40}),
        ok(usage={"\u00e9": 1}),
        ok().replace('"stop"', '"' + "s" * 100 + '"'),
        ok().replace('"stop"', '["stop"]'),
        ok().replace('"x"', '"\\ud800"'),
        "[" * 5000,
        "",
    ],
)
def test_both_ways_agree_on_odd_replies(body: str) -> None:
    careful = module._read_carefully(body, CHAT, "m")
    assert read_reply(body, endpoint=CHAT, model="m") == careful


def test_problems_are_named() -> None:
    for body, said in (
        (ok(model="other"), "another model"),
        (ok(error={"message": "x"}), "reports an error"),
        (ok(choices=[]), "no list of choices"),
        (ok(choices=[3]), "the first choice is not an object"),
        ("3", "not a JSON object"),
    ):
        problem = read_reply(body, endpoint=CHAT, model="m").problem
        assert problem is not None and said in problem


def test_a_stream_is_joined() -> None:
    parts = [
        {"model": "m", "choices": [{"delta": {}, "finish_reason": None, "token_ids": [1, 2]}]},
        {"model": "m", "choices": [{"delta": {}, "finish_reason": "length", "token_ids": [3]}]},
        {"model": "m", "choices": [], "usage": {"completion_tokens": 3}},
    ]
    body = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
    found = read_stream(body, endpoint=CHAT, model="m")
    assert found == Reply('{"completion_tokens":3}', "length", (1, 2, 3), None)
