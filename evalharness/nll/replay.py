"""What `evalharness nll capture` and `replay` do with a running server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evalharness.errors import ManifestError, ServerError
from evalharness.nll.ask import Endpoint, ask, tokenize
from evalharness.nll.capture import (
    PROBE_ROW,
    Skipped,
    capture_request,
    captured_rows,
    refused_decode,
    to_prompt,
    with_token_ids,
)
from evalharness.nll.cases import to_case
from evalharness.nll.overlap import annotate
from evalharness.nll.request import DECODE, TEMPLATE, to_request
from evalharness.nll.score import row_json, score_tokens
from evalharness.nll.windows import windows
from evalharness.seeds import request_seed
from evalharness.types import Request, RequestContext, Sampling, canonical_json, sha256_hex


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a JSON Lines file; ManifestError names file and line of a bad one."""
    try:
        # Not splitlines: a text may hold U+2028, which ends no line of JSON Lines.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: cannot be read ({error}); expected JSON Lines") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ManifestError(f"{path} line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise ManifestError(f"{path} line {number}: expected an object")
        yield row


def capture_prompts(
    endpoint: Endpoint, path: Path, *, sampling: Sampling, seed: int, concurrency: int
) -> tuple[list[dict[str, Any]], list[Skipped]]:
    """Return case rows of the server's own continuations, and the prompts that gave none."""
    prompts = [to_prompt(row) for row in read_lines(path)]
    ids = [prompt.prompt_id for prompt in prompts]
    if len(set(ids)) != len(ids):
        raise ManifestError(f"{path}: two prompts have the same id; make the ids unique")
    seeds = [request_seed(seed, suite="nll", case_id=one, replicate=0) for one in ids]
    requests = [
        capture_request(prompt, model=endpoint.model, sampling=sampling, seed=one)
        for prompt, one in zip(prompts, seeds, strict=True)
    ]
    return captured_rows(ids, ask(endpoint, requests, concurrency=concurrency), seeds=seeds)


def capture_requests(
    endpoint: Endpoint, requests: Sequence[Request], *, concurrency: int
) -> tuple[list[dict[str, Any]], list[Skipped]]:
    """Return case rows of the answers to a suite's own requests, and those that gave none."""
    asked = [with_token_ids(request) for request in requests]
    seeds = [int(json.loads(request.body_json).get("seed", 0)) for request in asked]
    ids = [request.case_id for request in asked]
    return captured_rows(ids, ask(endpoint, asked, concurrency=concurrency), seeds=seeds)


def capture_text(
    endpoint: Endpoint, path: Path, *, context: int, continuation: int, stride: int
) -> list[dict[str, Any]]:
    """Return case rows cut from a text by the server's own tokenizer."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: cannot be read ({error}); expected a UTF-8 text") from error
    document = tokenize(endpoint, text)
    return list(
        windows(document, name=path.stem, context=context, continuation=continuation, stride=stride)
    )


def replay_file(
    endpoint: Endpoint,
    path: Path,
    *,
    mode: str,
    max_tokens: int,
    top_logprobs: int,
    concurrency: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Return the stored form of one NLL row per case of a file, in its order.

    Decode first asks a probe; raises ServerError where the server does not force its tokens.
    """
    cases = [to_case(str(row.get("id")), row) for row in read_lines(path)]
    if not cases:
        raise ManifestError(f"{path}: no cases; capture some first")
    extra = canonical_json({"top_logprobs": top_logprobs})
    context = RequestContext(
        model=endpoint.model,
        mode=mode,
        sampling=Sampling(0.0, 1.0, max_tokens, extra),
        seed=seed,
        replicate=0,
        template=TEMPLATE,
    )
    if mode == DECODE:
        probe = to_request(to_case("probe", PROBE_ROW), context)
        refused = refused_decode(ask(endpoint, [probe], concurrency=1)[0])
        if refused:
            raise ServerError(f"{endpoint.base_url}: {refused}")
    requests = [to_request(case, context) for case in cases]
    responses = ask(endpoint, requests, concurrency=concurrency)
    rows = [score_tokens(case, one) for case, one in zip(cases, responses, strict=True)]
    return [
        row_json(row, response_digest=sha256_hex(response.body)[:16])
        for row, response in zip(
            annotate(rows, responses, concurrency=concurrency), responses, strict=True
        )
    ]
