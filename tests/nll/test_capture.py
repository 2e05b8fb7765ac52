"""Captured continuations and text windows become cases; what cannot be one is named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalharness.errors import ManifestError
from evalharness.nll import SUITE
from evalharness.nll.capture import (
    PROBE_ROW,
    Skipped,
    capture_request,
    captured_row,
    captured_rows,
    refused_decode,
    to_prompt,
)
from evalharness.nll.runner import announcement, runner_of_log
from evalharness.nll.windows import windows
from evalharness.types import Response, Sampling
from tests.nll.answers import answer, case, context, decoded

SAMPLING = Sampling(0.8, 0.95, 32, '{"top_k": 20}')
CHAT = to_prompt({"id": "p", "messages": [{"role": "user", "content": "hi"}]})


def test_capture_asks_with_the_given_sampling() -> None:
    request = capture_request(CHAT, model="demo", sampling=SAMPLING, seed=3)
    body = json.loads(request.body_json)
    assert request.endpoint == "/v1/chat/completions" and not request.stream
    assert (body["temperature"], body["top_p"], body["top_k"], body["seed"]) == (0.8, 0.95, 20, 3)
    assert body["return_token_ids"] is True and body["max_tokens"] == 32
    text = capture_request(
        to_prompt({"id": "q", "prompt": [1, 2]}), model="m", sampling=SAMPLING, seed=0
    )
    assert text.endpoint == "/v1/completions" and json.loads(text.body_json)["prompt"] == [1, 2]


def captured(choice: dict[str, object], **outer: object) -> Response:
    """An answer to the capture request."""
    request = capture_request(CHAT, model="demo", sampling=SAMPLING, seed=3)
    return answer(request, json.dumps({"choices": [choice], **outer}))


def test_ids_come_from_the_server_and_a_natural_end_is_kept() -> None:
    # Chat answers carry the prompt's ids beside the choices, completions inside the choice.
    response = captured({"token_ids": [9, 8, 2], "finish_reason": "stop"}, prompt_token_ids=[1, 5])
    row = captured_row(CHAT.prompt_id, response, seed=3)
    assert isinstance(row, dict)
    assert row["prompt_token_ids"] == [1, 5] and row["continuation_token_ids"] == [9, 8, 2]
    assert row["origin"]["finish_reason"] == "stop"
    assert SUITE.to_case(row["id"], row).case_id == "p"
    inner = captured({"token_ids": [9], "prompt_token_ids": [4], "finish_reason": "length"})
    row = captured_row(CHAT.prompt_id, inner, seed=3)
    assert isinstance(row, dict) and row["prompt_token_ids"] == [4]


def test_prompts_without_a_continuation_are_named() -> None:
    empty = captured({"token_ids": [], "finish_reason": "stop"}, prompt_token_ids=[1])
    none = captured({"message": {"content": "x"}})
    failed = answer(
        capture_request(CHAT, model="m", sampling=SAMPLING, seed=1),
        "",
        status="timeout",
        http_code=None,
    )
    rows, skipped = captured_rows([CHAT.prompt_id] * 3, [empty, none, failed], seeds=[1, 2, 3])
    assert rows == []
    assert [one.reason for one in skipped] == [
        "the continuation is empty",
        "the answer has no token ids",
        "timeout",
    ]
    assert isinstance(captured_row(CHAT.prompt_id, empty, seed=1), Skipped)


@given(
    length=st.integers(2, 200),
    context_size=st.integers(1, 30),
    continuation=st.integers(1, 30),
    stride=st.integers(1, 40),
)
def test_windows_are_slices_of_the_document(
    length: int, context_size: int, continuation: int, stride: int
) -> None:
    document = list(range(length))
    size = context_size + continuation
    sizes = {"context": context_size, "continuation": continuation, "stride": stride}
    if length < size:
        with pytest.raises(ManifestError, match="tokens"):
            list(windows(document, name="d", **sizes))
        return
    rows = list(windows(document, name="d", **sizes))
    assert len(rows) == (length - size) // stride + 1
    for number, row in enumerate(rows):
        start = number * stride
        whole = row["prompt_token_ids"] + row["continuation_token_ids"]
        assert whole == document[start : start + size] and row["origin"]["start"] == start
    assert len({row["id"] for row in rows}) == len(rows)
    # Overlapping windows share a cluster; disjoint ones do not.
    assert len({row["cluster_id"] for row in rows}) == (1 if stride < size else len(rows))


def test_windows_of_no_size_are_refused() -> None:
    with pytest.raises(ManifestError, match="1 or more"):
        list(windows([1, 2, 3], name="d", context=0, continuation=1, stride=1))


def test_the_probe_tells_a_server_that_does_not_force() -> None:
    forced = PROBE_ROW["continuation_token_ids"]
    probe = case(PROBE_ROW["prompt_token_ids"], forced)
    request = SUITE.request(probe, context("decode"))
    good = answer(request, decoded([-9.0, -8.0, -7.0], ids=forced))
    assert refused_decode(good) == ""
    ignored = answer(request, decoded([-9.0, -8.0, -7.0], ids=[3, 4, 5]))
    assert "did not force" in refused_decode(ignored)
    # Processed log-probabilities of a forced token are 0: the model's own are lost.
    processed = answer(request, decoded([0.0, 0.0, 0.0], ids=forced))
    assert "processed_logprobs" in refused_decode(processed)
    refused = answer(request, '{"error": "vllm_xargs"}', status="http_error", http_code=400)
    assert "400" in refused_decode(refused) and "--logits-processors" in refused_decode(refused)


def test_the_runner_is_read_from_the_log_and_must_be_one() -> None:
    log = f"INFO x\n(Worker) {announcement('v1')}\n"
    assert runner_of_log(log) == "v1" and runner_of_log("INFO\n") is None
    assert runner_of_log(log + announcement("v2")) is None
