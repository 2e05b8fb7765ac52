"""Capture the control's own continuations: ask once, keep prompt and answer as token ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalharness.errors import ManifestError
from evalharness.nll.body import BodyError, read_stream
from evalharness.nll.score import body_text
from evalharness.types import Request, Response, Sampling, canonical_json

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to ask: chat messages, a plain text, or token ids."""

    prompt_id: str
    content: str  # canonical JSON of {"messages": [...]}, {"prompt": str} or {"prompt": [ids]}


@dataclass(frozen=True, slots=True)
class Skipped:
    """A prompt that gave no case, and why."""

    prompt_id: str
    reason: str


def to_prompt(row: Mapping[str, Any]) -> Prompt:
    """Return the prompt of one row {"id", "messages" | "prompt"}. ManifestError otherwise."""
    keys = [key for key in ("messages", "prompt") if key in row]
    if len(keys) != 1 or not isinstance(row.get("id"), str):
        raise ManifestError(
            f"prompt row {str(row)[:80]}: expected a text `id` and one of `messages`, `prompt`"
        )
    return Prompt(row["id"], canonical_json({keys[0]: row[keys[0]]}))


def capture_request(prompt: Prompt, *, model: str, sampling: Sampling, seed: int) -> Request:
    """Return the request that captures one continuation, to its natural end or `max_tokens`."""
    content = json.loads(prompt.content)
    body = {
        **json.loads(sampling.extra),
        **content,
        "model": model,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": seed,
        "return_token_ids": True,
        "stream": False,
    }
    endpoint = CHAT if "messages" in content else TEXT
    return Request(prompt.prompt_id, 0, endpoint, canonical_json(body))


def with_token_ids(request: Request) -> Request:
    """Return a suite's request so that its answer comes in one piece, with token ids."""
    body = json.loads(request.body_json)
    body.pop("stream_options", None)
    body |= {"return_token_ids": True, "stream": False}
    return Request(request.case_id, request.replicate, request.endpoint, canonical_json(body))


def captured_row(prompt_id: str, response: Response, *, seed: int) -> dict[str, Any] | Skipped:
    """Return the case row of one answer, or why there is none.

    The end-of-text token, where the answer ended naturally, is part of the continuation: its
    probability is as much the model's choice as any other's.
    """
    if response.status != "ok":
        return Skipped(prompt_id, f"{response.status} {response.http_code or ''}".strip())
    try:
        body = json.loads(body_text(response))
        choice = body["choices"][0]
        ids = choice.get("prompt_token_ids") or body["prompt_token_ids"]
        answer = choice["token_ids"]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return Skipped(prompt_id, "the answer has no token ids")
    if not answer:
        return Skipped(prompt_id, "the continuation is empty")
    return {
        "id": prompt_id,
        "prompt_token_ids": ids,
        "continuation_token_ids": answer,
        "origin": {
            "kind": "captured",
            "finish_reason": choice.get("finish_reason"),
            "request_digest": response.request_digest,
            "seed": seed,
        },
    }


def captured_rows(
    prompt_ids: Sequence[str], responses: Sequence[Response], *, seeds: Sequence[int]
) -> tuple[list[dict[str, Any]], list[Skipped]]:
    """Return the rows in prompt order, and the prompts that gave none."""
    rows: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    for prompt_id, response, seed in zip(prompt_ids, responses, seeds, strict=True):
        row = captured_row(prompt_id, response, seed=seed)
        if isinstance(row, Skipped):
            skipped.append(row)
        else:
            rows.append(row)
    return rows, skipped


# One token forced onto a prompt that would hardly choose it: tells whether the server forces.
PROBE_ROW = {"prompt_token_ids": [1, 2, 3, 4], "continuation_token_ids": [7, 7, 7]}


def refused_decode(response: Response) -> str:
    """Return why a server cannot do forced decode, "" if it can; `response` is the probe's."""
    remedy = (
        "start it with --logits-processors evalharness.nll.processor:ForcedTokens (evalharness "
        "importable there), or use mode prefill"
    )
    if response.status != "ok":
        code = f" {response.http_code}: {response.body[:200]}" if response.http_code else ""
        return f"the server refused forced tokens ({response.status}{code}); {remedy}"
    try:
        seen = read_stream(body_text(response))
    except BodyError as error:
        return f"the server's stream is not readable ({error}); {remedy}"
    wanted = PROBE_ROW["continuation_token_ids"]
    if seen.token_ids != wanted:
        return (
            f"the server did not force the tokens: wanted {wanted}, got {seen.token_ids}; {remedy}"
        )
    if not all(value is not None and value < 0.0 for value in seen.logprobs):
        return (
            f"the forced tokens have log-probabilities {seen.logprobs}: they are not the model's "
            "own; start the server without --logprobs-mode processed_logprobs"
        )
    return ""
