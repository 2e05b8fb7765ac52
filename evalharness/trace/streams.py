"""C streams to one server, and a profile asked for in the middle of them.

The profile starts only once the gate is open (every stream has made its set number of confirmed
outputs) and stops before any stream ends. The streams are dropped afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from evalharness.client import open_session
from evalharness.errors import IncompleteError, ServerError
from evalharness.lenient_json import loads
from evalharness.server.api import ServerApi
from evalharness.sse import DONE
from evalharness.text import printable
from evalharness.trace.asked import Asked, body
from evalharness.trace.gate import PureDecodeGate
from evalharness.trace.purity import Counters

POLL_S = 0.005
PROFILE_TIMEOUT_S = 600.0
MAX_EVENT_BYTES = 1 << 20
_PROMPT_TOKENS = re.compile(r"^vllm:prompt_tokens_total(?:\{[^}]*\})? ([0-9.e+]+)$", re.M)
_RUNNING = re.compile(r"^vllm:num_requests_running(?:\{[^}]*\})? ([0-9.e+]+)$", re.M)


@dataclass(frozen=True, slots=True)
class Profiled:
    """How the profile went; `before` and `after` are the server's own figures around it."""

    confirmed: int
    profiled_outputs: tuple[int, int]
    prompt_tokens: tuple[int, int] | None
    started_s: float
    stopped_s: float
    before: Counters
    after: Counters


async def profile(
    api: ServerApi,
    asked: Asked,
    *,
    api_key: str | None,
    say: Callable[[str], None] = lambda _text: None,
) -> Profiled:
    """Drive the streams, and start and stop the server's profiler in the middle of them.

    Raises ServerError where the server does not stream or has no profile endpoint, and
    IncompleteError where a stream ended before the profile was over.
    """
    gate = PureDecodeGate(asked.concurrency, asked.confirm)
    seen = _Seen(asked.concurrency)
    async with open_session(api_key=api_key, connections=asked.concurrency) as session:
        streams = [
            asyncio.ensure_future(_stream(session, api.base_url, asked, number, gate, seen))
            for number in range(asked.concurrency)
        ]
        try:
            async with asyncio.timeout(asked.timeout_s):
                return await _around(api, asked, gate, seen, streams, say)
        except TimeoutError:
            raise IncompleteError(
                f"{api.base_url}: {gate.confirmed} of {asked.confirm} confirmed outputs after "
                f"{asked.timeout_s:g} s; give a longer --timeout, or ask for fewer (--confirm)"
            ) from None
        finally:
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)


class _Seen:
    """What the streams said beside their outputs."""

    def __init__(self, concurrency: int) -> None:
        self.prompt_tokens: list[int | None] = [None] * concurrency

    def prompts(self) -> tuple[int, int] | None:
        known = [count for count in self.prompt_tokens if count is not None]
        return (min(known), max(known)) if len(known) == len(self.prompt_tokens) else None


async def _around(
    api: ServerApi,
    asked: Asked,
    gate: PureDecodeGate,
    seen: _Seen,
    streams: Sequence[asyncio.Future[None]],
    say: Callable[[str], None],
) -> Profiled:
    await _until(lambda: gate.open, gate, streams)
    confirmed = gate.confirmed
    say(f"{asked.concurrency} streams made {confirmed} outputs each in pure decode; profiling")
    before = await read_counters(api)
    started_s = await _order(api, "/start_profile")
    first = gate.made()
    wanted = [count + asked.outputs for count in first]
    await _until(
        lambda: all(made >= want for made, want in zip(gate.made(), wanted, strict=True)),
        gate,
        streams,
    )
    stopped_s = await _order(api, "/stop_profile")
    after = await read_counters(api)
    _refuse_ended(gate, streams)
    made = [last - begin for last, begin in zip(gate.made(), first, strict=True)]
    return Profiled(
        confirmed=confirmed,
        profiled_outputs=(min(made), max(made)),
        prompt_tokens=seen.prompts(),
        started_s=round(started_s, 3),
        stopped_s=round(stopped_s, 3),
        before=before,
        after=after,
    )


async def _until(
    reached: Callable[[], bool], gate: PureDecodeGate, streams: Sequence[asyncio.Future[None]]
) -> None:
    while not reached():
        _refuse_ended(gate, streams)
        await asyncio.sleep(POLL_S)


def _refuse_ended(gate: PureDecodeGate, streams: Sequence[asyncio.Future[None]]) -> None:
    for stream in streams:
        if stream.done():
            stream.result()  # raises what ended it
    if gate.broken:
        raise IncompleteError(
            "a stream ended before the profile was over: its outputs were used up or the server "
            "cut it short; ask for fewer outputs, or give the server a longer --max-model-len"
        )


async def _order(api: ServerApi, path: str) -> float:
    """Ask the profile endpoint and return the seconds it took."""
    begin_s = time.monotonic()
    answer = await api.post(path, timeout_s=PROFILE_TIMEOUT_S)
    if answer is None or answer[0] != 200:
        said = f"HTTP {answer[0]} {answer[1][:200]}" if answer is not None else "no answer"
        raise ServerError(
            f"{api.base_url}{path}: {printable(said)}; expected 200 from a vLLM that was started "
            'with --profiler-config \'{"profiler": "torch", "torch_profiler_dir": DIR}\''
        )
    return time.monotonic() - begin_s


async def read_counters(api: ServerApi) -> Counters:
    """Return the server's own count of running requests and prompt tokens, from /metrics."""
    answer = await api.get("/metrics", timeout_s=10.0)
    if answer is None or answer[0] != 200:
        return Counters(None, None)
    return Counters(_sum(_RUNNING, answer[1]), _sum(_PROMPT_TOKENS, answer[1]))


def _sum(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.findall(text)
    return int(sum(float(one) for one in found)) if found else None


async def _stream(
    session: aiohttp.ClientSession,
    base_url: str,
    asked: Asked,
    number: int,
    gate: PureDecodeGate,
    seen: _Seen,
) -> None:
    """Read one stream to its end, telling the gate of every output. Raises ServerError."""
    url = f"{base_url}/v1/completions"
    try:
        async with session.post(url, data=body(asked, number), allow_redirects=False) as reply:
            if reply.status != 200 or reply.content_type != "text/event-stream":
                text = (await reply.content.read(400)).decode("utf-8", "replace")
                raise ServerError(
                    f"{url}: HTTP {reply.status} {reply.content_type} {printable(text)}; expected "
                    "a stream of events: a server without streaming cannot be traced"
                )
            await _events(reply.content.readany, number, gate, seen)
    except (aiohttp.ClientError, OSError, EOFError) as error:
        raise ServerError(f"{url}: stream {number} broke off: {error!r}") from error
    finally:
        gate.ended(number)


async def _events(
    read: Callable[[], Awaitable[bytes]], number: int, gate: PureDecodeGate, seen: _Seen
) -> None:
    left = b""
    while chunk := await read():
        *whole, left = (left + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        if len(left) > MAX_EVENT_BYTES:
            raise ServerError(f"stream {number}: an event over {MAX_EVENT_BYTES} bytes")
        for event in whole:
            value = _payload(event)
            usage = value.get("usage")
            if isinstance(usage, dict) and isinstance(usage.get("prompt_tokens"), int):
                seen.prompt_tokens[number] = usage["prompt_tokens"]
            count = _outputs(value)
            if count:
                gate.outputs(number, count)


def _payload(event: bytes) -> dict[str, Any]:
    text = event.decode("utf-8", "replace")
    data = [line[5:].strip() for line in text.split("\n") if line.startswith("data:")]
    if not data or data == [DONE]:
        return {}
    value = loads("\n".join(data))
    if isinstance(value, dict) and "error" in value:
        raise ServerError(f"the stream reports an error: {printable(str(value['error']))[:300]}")
    return value if isinstance(value, dict) else {}


def _outputs(value: dict[str, Any]) -> int:
    """Count the tokens of an event: its token ids, or one where the server sends none of them."""
    with contextlib.suppress(LookupError, TypeError, AttributeError):
        choice = value["choices"][0]
        ids = choice.get("token_ids")
        if isinstance(ids, list):
            return len(ids)
        return 1 if choice.get("text") else 0
    return 0
