"""A server of raw bytes: what no HTTP library would ever send, after a request was read whole.

`async with ChaosServer("short_body") as server: server.base_url`. Every kind is a coroutine that
writes to the socket; `contacts` counts connections and `asked` whole requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable, Mapping

KEY = "planted-key-0123456789abcdef"
REPLY = {
    "model": "fake",
    "choices": [{"index": 0, "text": "#### 4", "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}
BODY = json.dumps(REPLY).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
MIB = 1 << 20


def plain(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """Return a whole reply."""
    lines = [b"HTTP/1.1 " + status, b"Content-Type: application/json", *headers]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


def bomb(size_mib: int) -> bytes:
    """Return a gzip stream of so many MiB of zeros, made a MiB at a time."""
    maker = zlib.compressobj(9, wbits=31)
    parts = [maker.compress(bytes(MIB)) for _ in range(size_mib)]
    return b"".join([*parts, maker.flush()])


def _chunked(body: bytes) -> bytes:
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body


# One write each; a kind that needs more is in _SLOW.
_RAW: Mapping[str, bytes] = {
    "good": plain(BODY),
    "status_500": plain(b'{"error": "planted"}', status=b"500 Internal Server Error"),
    "status_503": plain(b"<html>busy</html>", status=b"503 Service Unavailable"),
    "status_429": plain(b"", b"Retry-After: 3600", status=b"429 Too Many Requests"),
    "status_204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "status_999": plain(BODY, status=b"999 What"),
    "garbage": b"\x16\x03\x01\x02\x00 this is no HTTP at all\r\n\r\n",
    "nothing": b"",
    "short_body": HEAD + b"Content-Length: 4096\r\n\r\n" + BODY,
    "long_body": HEAD + b"Content-Length: 10\r\n\r\n" + BODY,
    "two_lengths": HEAD + b"Content-Length: 10\r\nContent-Length: 99\r\n\r\n" + BODY,
    "bad_length": HEAD + b"Content-Length: -1\r\n\r\n" + BODY,
    "bad_chunk": _chunked(b"zz\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "torn_chunk": _chunked(b"ffff\r\n" + BODY),
    "big_header": HEAD + b"X-A: " + b"a" * MIB + b"\r\n\r\n" + BODY,
    "many_headers": HEAD + b"".join(b"X-%d: 1\r\n" % n for n in range(60_000)) + b"\r\n",
    "header_utf8": plain(BODY, b"X-Evil: \xff\xfe\x1b[31m"),
    "invalid_utf8": plain(b'{"choices": "\xff\xfe"}'),
    "utf16": plain(json.dumps(REPLY).encode("utf-16")),
    "empty": plain(b""),
    "null": plain(b"null"),
    "number": plain(b"9" * 5000),
    "deep": plain(b"[" * 200_000 + b"]" * 200_000),
    "wrong_shape": plain(b'{"choices": {"0": {"text": 3}}}'),
    "no_choices": plain(b'{"model": "fake", "choices": []}'),
    "other_model": plain(json.dumps({**REPLY, "model": "another"}).encode()),
    "wrong_type": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 32\r\n\r\n"
    + b"<script>alert(document)</script>",
    "gzip_bomb": plain(bomb(200), b"Content-Encoding: gzip"),
    "gzip_lie": plain(BODY, b"Content-Encoding: gzip"),
    "deflate_br": plain(BODY, b"Content-Encoding: br, deflate"),
    "broken_sse": SSE + b'data: {"choices": [{"te\n\ndata: [DONE]\n\n',
    "sse_no_done": SSE + b"data: " + BODY + b"\n\n",
    "sse_no_data": SSE + b": ping\n\n: ping\n\n",
    "sse_utf8": SSE + b"data: \xff\xfe\n\ndata: [DONE]\n\n",
    "sse_error": SSE + b'data: {"error": {"message": "engine died"}}\n\ndata: [DONE]\n\n',
    "echo_key": plain(f'{{"error": "{KEY} refused"}}'.encode()),
}
OK_KINDS = ("good", "header_utf8", "status_999")


class ChaosServer:
    """Listens on a free port of the loopback; answers every request in one way."""

    def __init__(self, kind: str, *, location: str = "") -> None:
        self.kind = kind
        self.location = location
        self.contacts = 0
        self.asked = 0
        self.requests: list[bytes] = []
        self.base_url = ""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> ChaosServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.contacts += 1
        self._open.add(writer)
        # Cancelled only when the test ends; asyncio's streams would print that as an error.
        ended = (OSError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.suppress(*ended):
            self.requests.append(await _read_request(reader))
            self.asked += 1
            await self._answer(writer)
            await writer.drain()
        self._open.discard(writer)
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        if self.kind == "redirect":
            head = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: " + self.location.encode()
            writer.write(head + b"\r\nContent-Length: 0\r\n\r\n")
        elif self.kind in _SLOW:
            await _SLOW[self.kind](writer)
        else:
            writer.write(_RAW[self.kind])


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return head + await reader.readexactly(length)


async def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _reset_in_body(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 4096\r\n\r\n" + BODY)
    await writer.drain()
    await asyncio.sleep(0.05)
    await _reset(writer)


async def _hang(_writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(600)


async def _hang_in_body(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 4096\r\n\r\n" + BODY)
    await writer.drain()
    await asyncio.sleep(600)


async def _trickle(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 4096\r\n\r\n")
    for byte in BODY:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(1.0)


async def _trickle_head(writer: asyncio.StreamWriter) -> None:
    for byte in HEAD:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(1.0)


async def _endless(writer: asyncio.StreamWriter, head: bytes, part: bytes) -> None:
    writer.write(head)
    for _ in range(96 * MIB // len(part)):
        writer.write(part)
        await writer.drain()


async def _huge(writer: asyncio.StreamWriter) -> None:
    await _endless(writer, HEAD + b"Connection: close\r\n\r\n", b" " * (64 << 10))


async def _sse_flood(writer: asyncio.StreamWriter) -> None:
    await _endless(writer, SSE, b": ping\n\n" * 8192)


async def _event_flood(writer: asyncio.StreamWriter) -> None:
    await _endless(writer, SSE, b"data:\n\n" * 8192)


async def _interim_flood(writer: asyncio.StreamWriter) -> None:
    await _endless(writer, b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 2048)


_SLOW: Mapping[str, Callable[[asyncio.StreamWriter], Awaitable[None]]] = {
    "reset": _reset,
    "reset_in_body": _reset_in_body,
    "hang": _hang,
    "hang_in_body": _hang_in_body,
    "trickle": _trickle,
    "trickle_head": _trickle_head,
    "huge": _huge,
    "sse_flood": _sse_flood,
    "event_flood": _event_flood,
    "interim_flood": _interim_flood,
}
KINDS = (*_RAW, *_SLOW)
