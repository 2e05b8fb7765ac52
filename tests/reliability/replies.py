"""Every reply a server can give, through the real client: outcome, time, memory."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Sequence

from evalharness.client import Client, Prepared
from evalharness.store import decode_line, encode_line
from evalharness.types import Request, Response, canonical_json
from tests.reliability.chaos_server import KEY, KINDS, OK_KINDS, ChaosServer
from tests.reliability.tally import Tally

TIMEOUT_S = 1.0
LONG_TIMEOUT_S = 20.0
# The clock's bound is wide: on a busy machine it measures the others.
BOUND_CPU_S, BOUND_WALL_S = 8.0, 120.0
LIMIT_BYTES = 2 << 20
BOUND_BYTES = 48 << 20
HTTP_ERRORS = {"status_500": 500, "status_503": 503, "status_429": 429, "status_204": 204}
SLOW_KINDS = ("hang", "hang_in_body", "trickle", "trickle_head")
# A flood may be ended by the clock as well as by the size.
FLOODS = ("sse_flood", "event_flood")
EITHER_KINDS = (*FLOODS, "interim_flood", "huge", "many_headers", "big_header")
STREAM_KINDS = ("broken_sse", "sse_no_done", "sse_no_data", "sse_utf8", "sse_error", *FLOODS)


def expected_statuses(kind: str) -> tuple[str, ...]:
    """Return the outcomes that a kind of reply may have."""
    if kind in HTTP_ERRORS or kind == "status_999":
        return ("http_error",)
    if kind in OK_KINDS:
        return ("ok",)
    if kind in SLOW_KINDS:
        return ("timeout",)
    return ("transport_error", "timeout") if kind in EITHER_KINDS else ("transport_error",)


async def ask(kind: str, number: int) -> tuple[Response, ChaosServer]:
    """Ask a server of that kind once."""
    stream = kind in STREAM_KINDS
    body = canonical_json({"model": "fake", "prompt": str(number), "stream": stream})
    prepared = Prepared(Request(f"case-{number}", 0, "/v1/completions", body, stream))
    async with (
        ChaosServer(kind) as server,
        Client(
            server.base_url,
            model="fake",
            concurrency=1,
            api_key=KEY,
            timeout_s=TIMEOUT_S if kind in (*SLOW_KINDS, *EITHER_KINDS) else LONG_TIMEOUT_S,
            max_body_bytes=LIMIT_BYTES,
        ) as client,
    ):
        return await client.send(prepared, 1), server


def try_kind(kind: str, number: int) -> Tally:
    """Plant one kind of reply once and check all that must hold."""
    tally = Tally(f"reply: {kind}", times=1)
    tracemalloc.start()
    start_s, cpu_s = time.monotonic(), time.process_time()
    try:
        response, server = asyncio.run(ask(kind, number))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    took_s, cpu_s = time.monotonic() - start_s, time.process_time() - cpu_s
    tally.check(response.status in expected_statuses(kind), f"{response.status} {response.error}")
    tally.check(server.asked == 1, f"asked {server.asked} times")
    tally.check(cpu_s < BOUND_CPU_S, f"took {cpu_s:.1f} s of CPU")
    tally.check(took_s < BOUND_WALL_S, f"took {took_s:.1f} s")
    # The server's own side of a flood is in this process too, so the bound is a wide one.
    tally.check(peak < BOUND_BYTES, f"{peak >> 20} MiB")
    if kind in HTTP_ERRORS:
        tally.check(response.http_code == HTTP_ERRORS[kind], f"code {response.http_code}")
    if response.status != "ok":
        tally.check(bool(response.error), "no error text")
    tally.check(KEY not in f"{response.body}{response.error}", "the key is in the response")
    kept = decode_line(encode_line(response)[:-1]).response
    tally.check(
        kept.body == response.body and kept.status == response.status, "not kept", loses=True
    )
    return tally


def replies(times: int, kinds: Sequence[str] = KINDS) -> list[Tally]:
    """Plant every kind so many times; one tally for each."""
    return [try_kind(kind, number) for kind in kinds for number in range(times)]
