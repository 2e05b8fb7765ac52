"""The client: every fault has its outcome, in bounded time and memory, and nothing is retried."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
import time
import tracemalloc

import pytest

from evalharness.client import Client, Prepared
from evalharness.types import Request, Response, canonical_json
from tests.fake_server import SERVED, FakeServer

KEY = "planted-key-0123456789"


def request(number: int = 0, *, stream: bool = False, **fields: object) -> Prepared:
    body = {"model": SERVED, "prompt": f"p{number}", "max_tokens": 8, "stream": stream, **fields}
    return Prepared(Request(f"case-{number}", 0, "/v1/completions", canonical_json(body), stream))


async def ask(server: FakeServer, prepared: Prepared, **options: object) -> Response:
    settings = {"model": SERVED, "concurrency": 1, "timeout_s": 20.0, "api_key": KEY, **options}
    async with Client(server.base_url, **settings) as client:  # type: ignore[arg-type]
        return await client.send(prepared, 1)


async def test_a_plain_reply_is_kept_as_received() -> None:
    async with FakeServer(key=KEY) as server:
        response = await ask(server, request(return_token_ids=True, prompt=[1, 2, 3]))
    assert response.status == "ok"
    assert response.http_code == 200
    assert response.body.startswith('{"id": "cmpl-')
    assert response.usage == '{"completion_tokens":12,"prompt_tokens":3}'
    assert response.finish_reason == "stop"
    assert response.token_ids is not None and len(response.token_ids) == 12
    assert response.chunk_ns == ()
    assert response.first_byte_ns is not None and response.done_ns is not None
    assert response.sent_ns < response.first_byte_ns <= response.done_ns
    assert response.request_digest == request(return_token_ids=True, prompt=[1, 2, 3]).digest


async def test_what_comes_back_is_a_frozen_response_like_any_other() -> None:
    async with FakeServer(key=KEY) as server:
        response = await ask(server, request())
    assert type(response) is Response
    built = Response(**{name: getattr(response, name) for name in Response.__slots__})
    assert response == built and hash(response) == hash(built) and repr(response) == repr(built)
    with pytest.raises(dataclasses.FrozenInstanceError):
        response.status = "timeout"  # type: ignore[misc]
    assert dataclasses.replace(response, status="timeout").status == "timeout"
    assert pickle.loads(pickle.dumps(response)) == response  # noqa: S301 - our own bytes


async def test_a_stream_has_one_time_per_event() -> None:
    from evalharness.sse import events

    async with FakeServer(key=KEY) as server:
        response = await ask(server, request(stream=True))
    assert response.status == "ok"
    assert len(response.chunk_ns) == len(events(response.body)) > 5
    assert list(response.chunk_ns) == sorted(response.chunk_ns)
    assert response.usage is not None and response.finish_reason == "stop"


@pytest.mark.parametrize(
    ("fault", "status", "code", "said"),
    [
        ("status:500", "http_error", 500, "HTTP 500"),
        ("status:503", "http_error", 503, "HTTP 503"),
        ("status:429", "http_error", 429, "HTTP 429"),
        ("redirect", "http_error", 307, "HTTP 307"),
        ("reset", "transport_error", None, "Disconnected"),
        ("invalid_utf8", "transport_error", 200, "not UTF-8"),
        ("wrong_type", "transport_error", 200, "not a JSON object"),
        ("wrong_shape", "transport_error", 200, "no list of choices"),
        ("other_model", "transport_error", 200, "another model"),
        ("gzip", "transport_error", 200, "content-encoding 'gzip'"),
        ("empty", "transport_error", 200, "not a JSON object"),
        ("echo_key", "transport_error", 200, "reports an error"),
    ],
)
async def test_faults_of_plain_replies(
    fault: str, status: str, code: int | None, said: str
) -> None:
    async with FakeServer(key=KEY, faults={"every": fault}) as server:
        response = await ask(server, request())
        assert sum(server.asked.values()) == 1, "nothing is ever asked twice"
    assert (response.status, response.http_code) == (status, code)
    assert response.error is not None and said in response.error
    assert KEY not in response.body


@pytest.mark.parametrize(
    ("fault", "said"),
    [("broken_sse", "event 1 is not a JSON object"), ("no_done", "without [DONE]")],
)
async def test_faults_of_streams(fault: str, said: str) -> None:
    async with FakeServer(key=KEY, faults={"every": fault}) as server:
        response = await ask(server, request(stream=True))
    assert response.status == "transport_error"
    assert response.error is not None and said in response.error


async def test_a_server_without_streaming_is_read_as_plain_json() -> None:
    async with FakeServer(key=KEY) as server:
        plain = request(0)
        body = plain.request.body_json
        response = await ask(server, Prepared(Request("c", 0, "/v1/completions", body, True)))
    assert (response.status, response.chunk_ns) == ("ok", ())


@pytest.mark.parametrize("fault", ["hang", "trickle"])
async def test_a_slow_server_is_a_timeout(fault: str) -> None:
    async with FakeServer(key=KEY, faults={"every": fault}) as server:
        start_s = time.monotonic()
        response = await ask(server, request(), timeout_s=1.2)
    assert response.status == "timeout"
    assert time.monotonic() - start_s < 5
    assert (response.body != "") == (fault == "trickle"), "what came is kept"


async def test_a_timeout_hits_its_own_request_only() -> None:
    async with FakeServer(key=KEY, faults={2: "hang"}, delay_s=0.05) as server:
        settings = {"model": SERVED, "concurrency": 4, "timeout_s": 1.0, "api_key": KEY}
        async with Client(server.base_url, **settings) as client:  # type: ignore[arg-type]
            found = await asyncio.gather(*(client.send(request(n), 1) for n in range(4)))
    assert sorted(response.status for response in found) == ["ok", "ok", "ok", "timeout"]


async def test_a_huge_body_stays_bounded() -> None:
    async with FakeServer(key=KEY, faults={"every": "huge"}) as server:
        tracemalloc.start()
        response = await ask(server, request(), max_body_bytes=2 << 20)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert response.status == "transport_error"
    assert response.error is not None and "over 2097152 bytes" in response.error
    assert len(response.body) <= 1 << 20
    assert peak < 64 << 20


async def test_no_server_at_all() -> None:
    async with Client("http://127.0.0.1:9", model=SERVED, concurrency=1, timeout_s=5) as client:
        response = await client.send(request(), 1)
    assert (response.status, response.http_code) == ("transport_error", None)


async def test_a_wrong_key_is_an_http_error_without_the_key() -> None:
    async with FakeServer(key="another") as server:
        response = await ask(server, request())
    assert (response.status, response.http_code) == ("http_error", 401)


async def test_cancelling_is_not_an_outcome() -> None:
    async with FakeServer(key=KEY, faults={"every": "hang"}) as server:
        task = asyncio.ensure_future(ask(server, request()))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
