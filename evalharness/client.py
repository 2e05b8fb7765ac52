"""One Request -> one Response over HTTP. Never retries, follows no redirect, bounds everything.

Bodies are kept exactly as received. The only change ever made is that the launch's own key, should
a server echo it, is replaced by `<redacted>`.
"""

from __future__ import annotations

import asyncio
import base64
import time
from types import TracebackType

import aiohttp
from yarl import URL

from evalharness.reply import Reply, read_reply, read_stream
from evalharness.sse import EventClock
from evalharness.types import BodyEncoding, Request, Response, Status

DEFAULT_TIMEOUT_S = 600.0
DEFAULT_MAX_BODY_BYTES = 64 << 20
KEPT_OF_OVERSIZED_BYTES = 1 << 20
# Below the server's own keep-alive (5 s): a connection that both ends may close is not reused.
KEEPALIVE_S = 4.0
CONNECT_TIMEOUT_S = 30.0
REDACTED = "<redacted>"
_FAILURES = (aiohttp.ClientError, OSError, EOFError, ValueError)


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
        self._timeout_s = timeout_s
        self._max_body_bytes = max_body_bytes
        self._trust_env = trust_env
        self._urls: dict[str, URL] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        self._session = open_session(
            api_key=self._api_key,
            connections=self._concurrency,
            timeout_s=self._timeout_s,
            trust_env=self._trust_env,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def send(self, request: Request, in_flight: int) -> Response:
        """Send one request and return everything observed; raises only when cancelled.

        in_flight: requests in flight at this moment, this one included; stored with the response.
        """
        exchange = _Exchange(self._max_body_bytes, request.stream)
        payload = request.body_json.encode("utf-8")
        sent_ns = time.monotonic_ns()
        try:
            await self._exchange(request.endpoint, payload, exchange)
        except TimeoutError as error:
            # Connecting in vain is a transport error; a server that does not answer is a timeout.
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            exchange.fail("transport_error" if connecting else "timeout", error)
        except _FAILURES as error:
            exchange.fail("transport_error", error)
        return self._response(request, exchange, sent_ns, in_flight)

    async def _exchange(self, endpoint: str, payload: bytes, exchange: _Exchange) -> None:
        assert self._session is not None
        url = self._urls.get(endpoint)
        if url is None:
            url = self._urls[endpoint] = URL(self._base_url + endpoint, encoded=True)
        async with self._session.post(url, data=payload, allow_redirects=False) as reply:
            exchange.begin(reply)
            async for chunk in reply.content.iter_any():
                if not exchange.take(chunk):
                    reply.close()
                    return
        exchange.done_ns = time.monotonic_ns()

    def _response(
        self, request: Request, exchange: _Exchange, sent_ns: int, in_flight: int
    ) -> Response:
        body, encoding = self._text(exchange.body())
        status, error, reply = exchange.status, exchange.error, Reply()
        if status == "ok" and exchange.content_encoding:
            status = "transport_error"
            error = f"content-encoding {exchange.content_encoding!r}, though identity was asked for"
        elif status == "ok" and encoding != "utf-8":
            status, error = "transport_error", "the body is not UTF-8"
        elif status == "ok":
            read = read_stream if exchange.is_stream else read_reply
            reply = read(body, endpoint=request.endpoint, model=self._model)
            if reply.problem is not None:
                status, error = "transport_error", reply.problem
        if error is not None and self._api_key:
            error = error.replace(self._api_key, REDACTED)
        return Response(
            case_id=request.case_id,
            replicate=request.replicate,
            request_digest=request.digest,
            endpoint=request.endpoint,
            request_body=request.body_json,
            status=status,
            http_code=exchange.http_code,
            body=body,
            body_encoding=encoding,
            error=error,
            sent_ns=sent_ns,
            first_byte_ns=exchange.first_byte_ns,
            done_ns=exchange.done_ns,
            in_flight=in_flight,
            chunk_ns=exchange.chunk_ns(),
            usage=reply.usage,
            finish_reason=reply.finish_reason,
            token_ids=reply.token_ids,
        )

    def _text(self, raw: bytes) -> tuple[str, BodyEncoding]:
        if self._api_key and self._api_key.encode() in raw:
            raw = raw.replace(self._api_key.encode(), REDACTED.encode())
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
        if self._size <= self._limit:
            return True
        self.status = "transport_error"
        self.error = f"the body is over {self._limit} bytes; its beginning is kept"
        self._chunks = [b"".join(self._chunks)[: min(self._limit, KEPT_OF_OVERSIZED_BYTES)]]
        return False

    def fail(self, status: Status, error: BaseException) -> None:
        """Note what ended the exchange. An HTTP error whose body broke off stays one."""
        if self.status != "http_error":
            self.status = status
        text = str(error)
        self.error = f"{type(error).__name__}: {text}" if text else type(error).__name__

    def body(self) -> bytes:
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    def chunk_ns(self) -> tuple[int, ...]:
        return tuple(self._clock.times_ns) if self._clock is not None else ()


def open_session(
    *, api_key: str | None, connections: int, timeout_s: float, trust_env: bool = False
) -> aiohttp.ClientSession:
    """Return a session that asks for identity encoding, keeps no cookies and never decompresses.

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
        timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S),
        auto_decompress=False,
        trust_env=trust_env,
    )
