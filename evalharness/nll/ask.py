"""Ask a running server all requests of a capture or a replay, at a fixed concurrency."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

from evalharness.client import Client, Prepared
from evalharness.drive import drive
from evalharness.errors import ServerError
from evalharness.nll.score import body_text
from evalharness.types import Request, Response, canonical_json


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running server. `model` is the name it serves; `api_key` None sends none."""

    base_url: str
    model: str
    api_key: str | None
    timeout_s: float


class _Memory:
    """A sink that keeps the responses."""

    full = False

    def __init__(self) -> None:
        self.responses: dict[str, Response] = {}

    def append(self, response: Response) -> None:
        self.responses[response.case_id] = response

    async def drain(self) -> None:
        """Nothing to wait for."""


def ask(endpoint: Endpoint, requests: Sequence[Request], *, concurrency: int) -> list[Response]:
    """Return the responses in the requests' order; case ids must be unique."""

    async def run() -> dict[str, Response]:
        sink = _Memory()
        async with Client(
            endpoint.base_url,
            model=endpoint.model,
            concurrency=concurrency,
            api_key=endpoint.api_key,
            timeout_s=endpoint.timeout_s,
        ) as client:
            prepared = [Prepared(request) for request in requests]
            await drive(prepared, client.send, sink=sink, concurrency=concurrency)
        return sink.responses

    found = asyncio.run(run())
    return [found[request.case_id] for request in requests]


def tokenize(endpoint: Endpoint, text: str) -> list[int]:
    """Return a text's token ids by the server's own tokenizer (POST /tokenize).

    Raises ServerError where the server does not answer with a list of ids.
    """
    body = {"model": endpoint.model, "prompt": text, "add_special_tokens": False}
    request = Request("tokenize", 0, "/tokenize", canonical_json(body))
    response = ask(endpoint, [request], concurrency=1)[0]
    tokens = None
    if response.status == "ok":
        try:
            tokens = json.loads(body_text(response)).get("tokens")
        except ValueError:
            tokens = None
    if not isinstance(tokens, list) or not all(type(one) is int for one in tokens):
        raise ServerError(
            f"{endpoint.base_url}/tokenize: {response.status} {response.http_code} "
            f"{response.error or response.body[:200]}; expected a list of token ids from vLLM"
        )
    return tokens
