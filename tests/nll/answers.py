"""Server answers for tests, in the form that vLLM 0.32.0 gave on the CPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evalharness.nll import SUITE
from evalharness.types import Case, Request, RequestContext, Response, Sampling

PROMPT = [1, 4093, 198]
CONTINUATION = [6004, 2, 17]


def case(prompt: Sequence[int] = PROMPT, continuation: Sequence[int] = CONTINUATION) -> Case:
    """A case of token ids."""
    row = {"prompt_token_ids": list(prompt), "continuation_token_ids": list(continuation)}
    return SUITE.to_case("c-1", row)


def context(mode: str, *, max_tokens: int = 100, top: int = 0) -> RequestContext:
    """A request context."""
    extra = json.dumps({"top_logprobs": top}) if top else "{}"
    return RequestContext("demo", mode, Sampling(0.0, 1.0, max_tokens, extra), 7, 0, "nll/1")


def chunk(ids: Sequence[int], logprobs: Sequence[float | None], **extra: Any) -> dict[str, Any]:
    """One stream chunk with several tokens."""
    names = [f"t{one}" for one in ids]
    inner = {
        "tokens": names,
        "token_logprobs": list(logprobs),
        "top_logprobs": [{n: v} for n, v in zip(names, logprobs, strict=True)],
    }
    choice = {"index": 0, "text": "".join(names), "logprobs": inner, "token_ids": list(ids)}
    return {"id": "x", "model": "demo", "choices": [choice | extra]}


def stream(*chunks: dict[str, Any], done: bool = True) -> str:
    """A streamed body."""
    ending = "data: [DONE]\n\n" if done else ""
    return "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + ending


def decoded(
    logprobs: Sequence[float | None],
    ids: Sequence[int] = CONTINUATION,
    prompt: Sequence[int] = PROMPT,
) -> str:
    """A whole decode answer, one token a chunk."""
    chunks = [chunk([i], [v]) for i, v in zip(ids, logprobs, strict=True)]
    if chunks:
        chunks[0]["choices"][0]["prompt_token_ids"] = list(prompt)
        chunks[-1]["choices"][0]["finish_reason"] = "length"
    return stream(*chunks)


def prefilled(entries: Sequence[dict[str, Any] | None], ids: Sequence[int]) -> str:
    """A whole prefill answer."""
    choice = {
        "index": 0,
        "text": "!",
        "prompt_token_ids": list(ids),
        "prompt_logprobs": list(entries),
    }
    return json.dumps({"id": "x", "model": "demo", "choices": [choice]})


def answer(request: Request, body: str, **changes: Any) -> Response:
    """A response to a request."""
    made = Response(
        case_id=request.case_id,
        replicate=request.replicate,
        request_digest=request.digest,
        endpoint=request.endpoint,
        request_body=request.body_json,
        status="ok",
        http_code=200,
        body=body,
        body_encoding="utf-8",
        error=None,
        sent_ns=0,
        first_byte_ns=1,
        done_ns=100,
        in_flight=1,
    )
    return replace(made, **changes)
