"""A case as a request: its continuation scored in prefill, or forced token by token in decode.

The continuation is cut at the manifest's `max_tokens`. `sampling.extra` may hold
{"top_logprobs": k}: then every position also carries the k likeliest tokens, for the KL.
"""

from __future__ import annotations

import json
from typing import Any

from evalharness.errors import ManifestError
from evalharness.nll.cases import tokens_of
from evalharness.types import Case, Request, RequestContext, canonical_json

PREFILL, DECODE = "prefill", "decode"
MODES = (PREFILL, DECODE)
TEMPLATE = "nll/1"
ENDPOINT = "/v1/completions"
# The key of the forced ids in `vllm_xargs`; the processor reads it.
FORCED_KEY = "evalharness_forced_token_ids"
# What an arm adds to its server's command line so that it can force tokens.
PROCESSOR = "evalharness.nll.processor:ForcedTokens"
PROCESSOR_ARGS = ("--logits-processors", PROCESSOR)


def to_request(case: Case, context: RequestContext) -> Request:
    """Return the request of a case. Raises ManifestError on an unknown mode or template."""
    if context.mode not in MODES:
        raise ManifestError(f"nll mode {context.mode!r}: expected one of {', '.join(MODES)}")
    if context.template != TEMPLATE:
        raise ManifestError(f"nll template {context.template!r}: expected {TEMPLATE}")
    tokens = tokens_of(case)
    forced = list(tokens.continuation[: context.sampling.max_tokens])
    top = _top_logprobs(context)
    common = {
        "model": context.model,
        # Greedy: the forced token is the only one left, and no random state is drawn.
        "temperature": 0.0,
        "seed": context.seed,
        "return_token_ids": True,
        "add_special_tokens": False,
    }
    streamed = context.mode == DECODE
    specific = (
        _decode(tokens.prompt, forced, top) if streamed else _prefill(tokens.prompt, forced, top)
    )
    return Request(
        case_id=case.case_id,
        replicate=context.replicate,
        endpoint=ENDPOINT,
        body_json=canonical_json(common | specific),
        stream=streamed,
    )


def _decode(prompt: tuple[int, ...], forced: list[int], top: int) -> dict[str, Any]:
    return {
        "prompt": list(prompt),
        "max_tokens": len(forced),
        # Without it an end-of-text token inside the continuation would stop the stream.
        "ignore_eos": True,
        "logprobs": top,
        # Names tokens by id: different ids can decode to the same text.
        "return_tokens_as_token_ids": top > 0,
        "vllm_xargs": {FORCED_KEY: forced},
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _prefill(prompt: tuple[int, ...], forced: list[int], top: int) -> dict[str, Any]:
    return {
        "prompt": [*prompt, *forced],
        # The endpoint wants to generate something; the one token is not looked at.
        "max_tokens": 1,
        "prompt_logprobs": top,
    }


def _top_logprobs(context: RequestContext) -> int:
    extra = json.loads(context.sampling.extra)
    unknown = sorted(set(extra) - {"top_logprobs"})
    top = extra.get("top_logprobs", 0)
    if unknown or type(top) is not int or top < 0:
        raise ManifestError(
            f"nll sampling.extra {context.sampling.extra}: expected only top_logprobs, an integer "
            "of 0 or more; correct the manifest"
        )
    return top
