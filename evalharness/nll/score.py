"""Scorer raw/1: the server's own log-probabilities of exactly the forced tokens, or unobserved.

Nothing is taken on trust: the prompt ids, each forced token and their number must come back.
A row is observed or carries the reason; the reasons are listed in docs/nll.md.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from evalharness.nll.body import BodyError, Observed, read_prefill, read_stream
from evalharness.nll.cases import Tokens, tokens_of
from evalharness.nll.request import DECODE, FORCED_KEY, PREFILL
from evalharness.types import Case, NllRow, Response, canonical_json

SCORER = "raw/1"
VALID = "valid"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the stored request asked for."""

    mode: str
    prompt: list[int]
    forced: list[int]
    top: int


def score_tokens(case: Case, response: Response) -> NllRow:
    """Return the row of one response. Never raises on any response.

    `in_flight` repeats the count at send and `pure` is False throughout; both need the whole
    cell, see `evalharness.nll.overlap.annotate`.
    """
    mode = PREFILL if '"prompt_logprobs"' in response.request_body else DECODE
    if response.status != "ok":
        code = f":{response.http_code}" if response.status == "http_error" else ""
        return _unobserved(case, response, mode, reason=f"{response.status}{code}")
    try:
        asked = read_request(response.request_body, tokens_of(case))
        seen = _slice(asked, _read(asked.mode, response))
        _check(asked, seen)
    except BodyError as error:
        return _unobserved(case, response, mode, reason=str(error))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return _unobserved(case, response, mode, reason="malformed_body:form")
    return NllRow(
        case_id=case.case_id,
        replicate=response.replicate,
        mode=mode,
        outcome="observed",
        reason=VALID,
        scorer=SCORER,
        token_ids=tuple(asked.forced),
        logprobs=tuple(seen.logprobs),
        in_flight=(response.in_flight,) * len(asked.forced),
        pure=(False,) * len(asked.forced),
        top_logprobs=canonical_json(seen.top) if asked.top else "[]",
    )


def read_request(body: str, tokens: Tokens) -> Asked:
    """Return what a request body asked for, checked against the case it should be of.

    Raises BodyError where it is not a request of this case.
    """
    request = json.loads(body)
    prompt = list(tokens.prompt)
    if "prompt_logprobs" in request:
        mode, sent, top = PREFILL, request["prompt"], request["prompt_logprobs"]
        forced = sent[len(prompt) :]
    else:
        mode, sent, top = DECODE, request["prompt"], request["logprobs"]
        forced = request["vllm_xargs"][FORCED_KEY]
    if sent[: len(prompt)] != prompt or (mode == DECODE and len(sent) != len(prompt)):
        raise BodyError("request_mismatch:prompt")
    if not forced or list(tokens.continuation[: len(forced)]) != forced:
        raise BodyError("request_mismatch:continuation")
    return Asked(mode, prompt, forced, top)


def body_text(response: Response) -> str:
    """Return the body's text; undecodable bytes become replacement characters."""
    if response.body_encoding == "base64":
        return base64.b64decode(response.body).decode("utf-8", "replace")
    return response.body


def _read(mode: str, response: Response) -> Observed:
    text = body_text(response)
    return read_prefill(text) if mode == PREFILL else read_stream(text)


def _slice(asked: Asked, seen: Observed) -> Observed:
    """Turn a prefill answer into the form of a decode answer: prompt ids, then the rest."""
    if asked.mode == DECODE:
        return seen
    start = len(asked.prompt)
    return Observed(
        prompt_ids=seen.token_ids[:start],
        token_ids=seen.token_ids[start:],
        logprobs=seen.logprobs[start:],
        top=seen.top[start:],
        texts=seen.texts[start:],
        event=seen.event[start:],
        finish_reason=seen.finish_reason,
        ended=seen.ended,
    )


def _check(asked: Asked, seen: Observed) -> None:
    if not seen.ended:
        raise BodyError("torn_stream")
    if seen.prompt_ids is None:
        raise BodyError("no_prompt_token_ids")
    if seen.prompt_ids != asked.prompt:
        raise BodyError("prompt_mismatch")
    for position, (want, got) in enumerate(zip(asked.forced, seen.token_ids, strict=False)):
        if want != got:
            raise BodyError(f"not_forced:position {position} wanted {want} got {got}")
    if len(seen.token_ids) != len(asked.forced):
        raise BodyError(f"token_count:{len(seen.token_ids)} of {len(asked.forced)}")
    if not len(seen.logprobs) == len(seen.top) == len(asked.forced):
        raise BodyError("malformed_body:lengths")


def _unobserved(case: Case, response: Response, mode: str, *, reason: str) -> NllRow:
    return NllRow(
        case_id=case.case_id,
        replicate=response.replicate,
        mode=mode,
        outcome="unobserved",
        reason=reason,
        scorer=SCORER,
    )


def row_json(row: NllRow, *, response_digest: str) -> dict[str, Any]:
    """Return the stored form of a row (formats/nll_row.schema.json)."""
    return {
        "case_id": row.case_id,
        "replicate": row.replicate,
        "mode": row.mode,
        "outcome": row.outcome,
        "reason": row.reason,
        "scorer": row.scorer,
        "token_ids": list(row.token_ids),
        "logprobs": list(row.logprobs),
        "in_flight": list(row.in_flight),
        "pure": list(row.pure),
        "top_logprobs": json.loads(row.top_logprobs),
        "clamped": sum(value is None for value in row.logprobs),
        "response_digest": response_digest,
    }
