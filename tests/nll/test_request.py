"""What is asked: token ids only, cut at max_tokens, equal across arms."""

from __future__ import annotations

import json

import pytest

from evalharness.errors import ManifestError
from evalharness.nll import SUITE
from evalharness.nll.request import FORCED_KEY
from tests.nll.answers import CONTINUATION, PROMPT, case, context


def test_decode_forces_the_continuation_and_nothing_else() -> None:
    request = SUITE.request(case(), context("decode"))
    body = json.loads(request.body_json)
    assert request.endpoint == "/v1/completions" and request.stream and body["stream"] is True
    assert body["prompt"] == PROMPT and body["vllm_xargs"] == {FORCED_KEY: CONTINUATION}
    assert body["max_tokens"] == len(CONTINUATION)
    # An end-of-text id (2) lies inside the continuation: without this the stream would stop there.
    assert body["ignore_eos"] is True and body["return_token_ids"] is True
    assert "prompt_logprobs" not in body


def test_prefill_sends_both_parts_as_one_prompt() -> None:
    request = SUITE.request(case(), context("prefill", top=3))
    body = json.loads(request.body_json)
    assert body["prompt"] == PROMPT + CONTINUATION and body["prompt_logprobs"] == 3
    assert not request.stream and "vllm_xargs" not in body and "logprobs" not in body


@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_a_continuation_longer_than_max_tokens_is_cut(mode: str) -> None:
    body = json.loads(SUITE.request(case(), context(mode, max_tokens=2)).body_json)
    forced = body["vllm_xargs"][FORCED_KEY] if mode == "decode" else body["prompt"][len(PROMPT) :]
    assert forced == CONTINUATION[:2]


def test_top_logprobs_name_tokens_by_id() -> None:
    body = json.loads(SUITE.request(case(), context("decode", top=5)).body_json)
    assert body["logprobs"] == 5 and body["return_tokens_as_token_ids"] is True


@pytest.mark.parametrize(
    ("prompt", "continuation"),
    [([], [1]), ([1], []), ([1], [-1]), ([1], [True]), ([1], ["1"]), ([1], None), ([1], [[1]])],
)
def test_rows_that_cannot_be_scored_are_refused(prompt: object, continuation: object) -> None:
    row = {"prompt_token_ids": prompt, "continuation_token_ids": continuation}
    with pytest.raises(ManifestError, match="c-9"):
        SUITE.to_case("c-9", row)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ManifestError, match="mode"):
        SUITE.request(case(), context("chat"))
    odd = context("decode")
    with pytest.raises(ManifestError, match="template"):
        SUITE.request(case(), type(odd)("demo", "decode", odd.sampling, 0, 0, "nll/2"))
    sampling = type(odd.sampling)(0.0, 1.0, 5, '{"top_k": 3}')
    with pytest.raises(ManifestError, match="top_logprobs"):
        SUITE.request(case(), type(odd)("demo", "decode", sampling, 0, 0, "nll/1"))
