"""One Request -> one Response over HTTP. Never retries, follows no redirect, bounds everything.

Bodies are kept exactly as received. The only change ever made is that the launch's own key, should
a server echo it, is replaced by `<redacted>`.
"""

from __future__ import annotations

import asyncio
import base64
import time
from dataclasses import fields, make_dataclass
from types import TracebackType
from typing import Any, cast

import aiohttp
from yarl import URL

from evalharness.redact import REDACTED
from evalharness.reply import Reply, read_reply, read_stream
from evalharness.sse import EventClock
from evalharness.types import BodyEncoding, Request, Response, Status

DEFAULT_TIMEOUT_S = 600.0
DEFAULT_MAX_BODY_BYTES = 64 << 20
KEPT_OF_OVERSIZED_BYTES = 1 << 20
# Far over any answer's tokens; a flood of empty events would cost memory for each one's time.
MAX_EVENTS = 1 << 20
# Below the server's own keep-alive (5 s): a connection that both ends may close is not reused.
KEEPALIVE_S = 4.0
CONNECT_TIMEOUT_S = 30.0
NO_REPLY = Reply()
# A frozen dataclass sets every field through object.__setattr__: 4 us a response, a twentieth of a
# request's CPU. This twin has the same slots, is filled plainly, and then becomes a Response.
_Filled: Any = make_dataclass(
    "_Filled", [(one.name, one.type) for one in fields(Response)], slots=True
)
_FAILURES = (aiohttp.ClientError, OSError, EOFError, ValueError)


class Prepared:
    """A request with what sending needs, made once: its bytes and its digest."""

    __slots__ = ("digest", "payload", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.payload = aiohttp.BytesPayload(
            request.body_json.encode("utf-8"), content_type="application/json"
        )
        self.digest = request.digest


class Client:
    """A connection pool to one server. Use as an async context manager, one per cell.

    model: name that requests ask for and replies must carry. trust_env: use the proxy settings
    of the environment; off unless asked for.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str,
        concurrency: int,
        api_key: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
        trust_env: bool = False,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._model = model
        self._concurrency = concurrency
        self._api_key = api_key
        self._key_bytes = api_key.encode() if api_key else None
        self._timeout_ns = int(timeout_s * 1e9)
        self._max_body_bytes = max_body_bytes
        self._trust_env = trust_env
        self._urls: dict[str, URL] = {}
        self._open: dict[_Exchange, asyncio.Task[Any]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Client:
        self._session = open_session(
            api_key=self._api_key, connections=self._concurrency, trust_env=self._trust_env
        )
        self._sweeper = asyncio.create_task(self._sweep())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None and self._sweeper is not None
        self._sweeper.cancel()
        await self._session.close()

    async def send(self, prepared: Prepared, in_flight: int) -> Response:
        """Send one request and return everything observed; raises only when cancelled.

        in_flight: requests in flight at this moment, this one included; stored with the response.
        """
        exchange = _Exchange(self._max_body_bytes, prepared.request.stream)
        task = asyncio.current_task()
        assert task is not None
        self._open[exchange] = task
        try:
            await self._exchange(prepared, exchange)
        except asyncio.CancelledError:
            if not exchange.overdue:
                raise
            task.uncancel()
            exchange.fail("timeout", TimeoutError(f"no end after {self._timeout_ns / 1e9:g} s"))
        except (TimeoutError, *_FAILURES) as error:
            exchange.fail("transport_error", error)
        finally:
            del self._open[exchange]
        return self._response(prepared, exchange, in_flight)

    async def _exchange(self, prepared: Prepared, exchange: _Exchange) -> None:
        assert self._session is not None
        endpoint = prepared.request.endpoint
        url = self._urls.get(endpoint)
        if url is None:
            url = self._urls[endpoint] = URL(self._base_url + endpoint, encoded=True)
        reply = await self._session.post(url, data=prepared.payload, allow_redirects=False)
        try:
            exchange.begin(reply)
            content = reply.content
            while not content.at_eof():
                chunk = await content.readany()
                if chunk and not exchange.take(chunk):
                    reply.close()
                    return
            exchange.done_ns = time.monotonic_ns()
        except BaseException:
            reply.close()
            raise

    async def _sweep(self) -> None:
        """End what is overdue. One task for all: a timer for each request costs a tenth more."""
        period_s = min(0.25, self._timeout_ns / 1e9 / 4)
        while True:
            await asyncio.sleep(period_s)
            limit_ns = time.monotonic_ns() - self._timeout_ns
            for exchange, task in list(self._open.items()):
                if exchange.sent_ns > limit_ns:
                    break  # in the order of sending, so all later ones have time left
                exchange.overdue = True
                task.cancel()

    def _response(self, prepared: Prepared, exchange: _Exchange, in_flight: int) -> Response:
        body, encoding = self._text(exchange.body())
        status, error, reply = exchange.status, exchange.error, NO_REPLY
        request = prepared.request
        if status == "ok":
            if exchange.content_encoding or encoding != "utf-8":
                status = "transport_error"
                error = exchange.unreadable()
            else:
                read = read_stream if exchange.is_stream else read_reply
                reply = read(body, endpoint=request.endpoint, model=self._model)
                if reply.problem is not None:
                    status, error = "transport_error", reply.problem
        if error is not None and self._api_key:
            error = error.replace(self._api_key, REDACTED)
        made = _Filled(
            request.case_id,
            request.replicate,
            prepared.digest,
            request.endpoint,
            request.body_json,
            status,
            exchange.http_code,
            body,
            encoding,
            error,
            exchange.sent_ns,
            exchange.first_byte_ns,
            exchange.done_ns,
            in_flight,
            exchange.chunk_ns(),
            reply.usage,
            reply.finish_reason,
            reply.token_ids,
        )
        made.__class__ = Response
        return cast(Response, made)

    def _text(self, raw: bytes) -> tuple[str, BodyEncoding]:
        if self._key_bytes is not None and self._key_bytes in raw:
            raw = raw.replace(self._key_bytes, REDACTED.encode())
        try:
            return raw.decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            return base64.b64encode(raw).decode("ascii"), "base64"


class _Exchange:
    """What one exchange has shown so far."""

    __slots__ = (
        "_chunks",
        "_clock",
        "_limit",
        "_size",
        "content_encoding",
        "done_ns",
        "error",
        "first_byte_ns",
        "http_code",
        "is_stream",
        "overdue",
        "sent_ns",
        "status",
    )

    def __init__(self, limit: int, stream: bool) -> None:
        self.status: Status = "ok"
        self.error: str | None = None
        self.http_code: int | None = None
        self.content_encoding = ""
        self.first_byte_ns: int | None = None
        self.done_ns: int | None = None
        self.is_stream = stream
        self.overdue = False
        self.sent_ns = time.monotonic_ns()
        self._limit = limit
        self._size = 0
        self._chunks: list[bytes] = []
        self._clock: EventClock | None = None

    def begin(self, reply: aiohttp.ClientResponse) -> None:
        """Take status and headers. A server without streaming answers a stream with plain JSON."""
        self.http_code = reply.status
        if reply.status != 200:
            self.status = "http_error"
            self.error = f"HTTP {reply.status}"
        encoding = reply.headers.get("Content-Encoding")
        if encoding is not None and encoding.lower() != "identity":
            self.content_encoding = encoding[:40]
        self.is_stream = self.is_stream and reply.content_type == "text/event-stream"
        if self.is_stream:
            self._clock = EventClock()

    def take(self, chunk: bytes) -> bool:
        """Keep a chunk; False once the body is larger than allowed."""
        if self._clock is not None:
            now_ns = time.monotonic_ns()
            self.first_byte_ns = self.first_byte_ns or now_ns
            self._clock.feed(chunk, now_ns)
        elif self.first_byte_ns is None:
            self.first_byte_ns = time.monotonic_ns()
        self._size += len(chunk)
        self._chunks.append(chunk)
        flooded = self._clock is not None and len(self._clock.times_ns) > MAX_EVENTS
        if self._size <= self._limit and not flooded:
            return True
        over = f"{MAX_EVENTS} events" if flooded else f"{self._limit} bytes"
        self.status = "transport_error"
        self.error = f"the body is over {over}; its beginning is kept"
        self._chunks = [b"".join(self._chunks)[: min(self._limit, KEPT_OF_OVERSIZED_BYTES)]]
        return False

    def fail(self, status: Status, error: BaseException) -> None:
        """Note what ended the exchange. An HTTP error whose body broke off stays one."""
        if self.status != "http_error":
            self.status = status
        text = str(error)
        self.error = f"{type(error).__name__}: {text}" if text else type(error).__name__

    def unreadable(self) -> str:
        """Say why the body of a 200 reply is no text."""
        if self.content_encoding:
            return f"content-encoding {self.content_encoding!r}, though identity was asked for"
        return "the body is not UTF-8"

    def body(self) -> bytes:
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    def chunk_ns(self) -> tuple[int, ...]:
        return tuple(self._clock.times_ns[:MAX_EVENTS]) if self._clock is not None else ()


def open_session(
    *, api_key: str | None, connections: int, trust_env: bool = False
) -> aiohttp.ClientSession:
    """Return a session that asks for identity encoding, keeps no cookies and never decompresses.

    Bounding the time of a request is the caller's part.
    A compressed body would be a bomb's way in, and a decompressed one is not what was received.
    """
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    loop = asyncio.get_running_loop()
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=connections, limit_per_host=connections, keepalive_timeout=KEEPALIVE_S
        ),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(loop=loop),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        auto_decompress=False,
        trust_env=trust_env,
    )
