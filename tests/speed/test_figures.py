"""A cell's figures on planted times: what counts, what never does, what is missing and why."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from evalharness.speed.figures import E2E, FIGURES, STEP, TOKENS_PER_S, TTFT, cell_figures
from evalharness.speed.steps import pure_steps, stream_of, trimmed_mean
from evalharness.types import Response
from tests.speed.simulated import stream_body

MS = 1_000_000


def reply(sent_ms: float, at_ms: Sequence[float], **changes: Any) -> Response:
    """A response whose tokens came at these times; it forces as many as came."""
    at = tuple(int(one * MS) for one in at_ms)
    body = changes.pop("body", stream_body(len(at)))
    fields: dict[str, Any] = {
        "case_id": f"c{sent_ms}", "replicate": 0, "request_digest": "0" * 64,
        "endpoint": "/v1/completions", "request_body": json.dumps({"max_tokens": len(at)}),
        "status": "ok", "http_code": 200, "body": body, "body_encoding": "utf-8", "error": None,
        "sent_ns": int(sent_ms * MS), "first_byte_ns": at[0], "done_ns": at[-1], "in_flight": 2,
        "chunk_ns": (*at, at[-1], at[-1]),
    }  # fmt: skip
    return Response(**{**fields, **changes})


def steady(sent_ms: float, first_ms: float, tokens: int, step_ms: float) -> Response:
    """A stream with even steps."""
    return reply(sent_ms, [first_ms + i * step_ms for i in range(tokens)])


def test_the_first_c_requests_never_count() -> None:
    slow = [steady(0, 500, 8, 90), steady(0.1, 500, 8, 90)]
    fast = [steady(2000, 2010, 8, 10), steady(2000.1, 2010, 8, 10)]
    figures = cell_figures([*fast, *slow], 2)
    assert (figures.requests, figures.warmup) == (2, 2)
    assert figures.values[STEP] == pytest.approx(10)
    assert figures.values[TTFT] == pytest.approx(9.95)
    assert figures.values[E2E] == pytest.approx(79.95)
    assert figures.values[TOKENS_PER_S] == pytest.approx(16 / 0.080)
    assert not figures.missing


def test_only_steps_in_which_all_streams_decode_count() -> None:
    # the second stream is read in at 2000..2055, which makes the first one's steps there long
    warm = [steady(0, 10, 4, 10), steady(0.1, 10, 4, 10)]
    first = reply(2000, [2010, 2020, 2055, 2065, 2075, 2085])
    second = reply(2030, [2055, 2065, 2075, 2085, 2095, 2105])
    figures = cell_figures([*warm, first, second], 2)
    assert figures.values[STEP] == pytest.approx(10)
    # first: 2065, 2075, 2085; second: the same; its last two have nobody beside them
    assert figures.pure_tokens == 6


def test_a_stream_too_few_leaves_no_step() -> None:
    figures = cell_figures([steady(t, t + 10, 6, 10) for t in (0, 100, 200)], 2)
    assert "in no step were all 2" in figures.missing[STEP]
    assert set(figures.values) == {TOKENS_PER_S, TTFT, E2E}


def test_tokens_that_arrive_together_share_their_time() -> None:
    # late reads: two tokens at one moment, twice; the mean step is what it was
    streams = [
        stream_of([0, 20, 20, 40, 40], [1, 1, 1, 1, 1], measured=True),
        stream_of([0, 10, 20, 30, 40], [1] * 5, measured=True),
    ]
    steps = pure_steps(streams, 2)
    assert steps.step_ms == pytest.approx(10 / 1e6)
    assert steps.tokens == 8
    # several tokens an event, as speculative decoding sends them
    assert pure_steps([stream_of([0, 30], [1, 3], measured=True)], 1).step_ms == pytest.approx(1e-5)


def test_a_stall_is_in_the_rate_and_not_in_the_step() -> None:
    at = [2010 + 10 * i for i in range(40)]
    stalled = [one + (500 if i > 20 else 0) for i, one in enumerate(at)]
    warm = reply(0, [10, 20])
    even, late = (
        cell_figures([warm, reply(2000, at)], 1),
        cell_figures([warm, reply(2000, stalled)], 1),
    )
    assert late.values[STEP] == pytest.approx(even.values[STEP])
    assert late.values[TOKENS_PER_S] < even.values[TOKENS_PER_S] / 2
    # a step that is slow every fifth time is no stall
    slow = [2010 + 10 * i + 20 * (i // 5) for i in range(40)]
    assert cell_figures([warm, reply(2000, slow)], 1).values[STEP] > 11


def test_the_trimmed_mean_counts_weights() -> None:
    values, weights = np.array([5.0, 1.0, 100.0]), np.array([8, 1, 1])
    assert trimmed_mean(values, weights, cut=0.1) == pytest.approx(5)
    assert trimmed_mean(values, weights, cut=0.05) == pytest.approx((40 + 0.5 + 50) / 9)


def test_one_request_more_than_the_warmup_is_needed() -> None:
    figures = cell_figures([steady(0, 10, 4, 10), steady(1, 10, 4, 10)], 2)
    assert all("warm-up" in figures.missing[name] for name in FIGURES)


def test_a_failed_request_takes_every_figure() -> None:
    # an arm that fails half of its requests at once would be the fastest of all
    good = [steady(t, t + 10, 6, 10) for t in (0, 100)]
    bad = reply(200, [210], status="transport_error", error="reset", body="")
    figures = cell_figures([*good, bad], 1)
    assert not figures.values
    assert "1 of 2 requests failed: transport_error" in figures.missing[TOKENS_PER_S]


def test_a_server_without_streaming_lacks_steps_and_first_tokens_alone() -> None:
    whole = json.dumps(
        {"choices": [{"finish_reason": "length"}], "usage": {"completion_tokens": 2}}
    )
    replies = [reply(t, [t + 10, t + 20], body=whole, chunk_ns=()) for t in (0, 100)]
    figures = cell_figures(replies, 1)
    assert set(figures.values) == {TOKENS_PER_S, E2E}
    assert figures.missing[STEP] == figures.missing[TTFT] == "1 of 1 replies were not streamed"


def test_a_server_without_usage_lacks_the_rate_alone() -> None:
    replies = [
        reply(t, [t + 10, t + 20, t + 30], body=stream_body(3, usage=False)) for t in (0, 100)
    ]
    figures = cell_figures(replies, 1)
    assert set(figures.values) == {STEP, TTFT, E2E}
    assert "no usage" in figures.missing[TOKENS_PER_S]


def test_a_server_that_ends_answers_itself_keeps_step_and_first_token() -> None:
    replies = [steady(t, t + 10, 6, 10) for t in (0, 100)]
    replies = [dataclasses.replace(r, request_body='{"max_tokens":7}') for r in replies]
    figures = cell_figures(replies, 1)
    assert set(figures.values) == {STEP, TTFT}
    assert "forced length: length:6 of 7" in figures.missing[E2E]
