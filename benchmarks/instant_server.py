"""A loopback server that answers every chat completion at once with one fixed answer.

Not part of the product: it exists so that a client's own cost can be measured, and it times
every client alike: GET /bench/stats returns (and resets) how many completions it answered, and
its clock at the first request's arrival and at the last reply's sending.
Prints its port and serves until its stdin closes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass

MODEL = "bench"
ANSWER = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "step " * 80 + "#### 42"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 200},
    }
).encode()
MODELS = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
END = b"\r\n\r\n"
LENGTH = b"content-length:"


def reply(body: bytes, status: bytes = b"200 OK") -> bytes:
    """Return a whole HTTP reply."""
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


ANSWERED = reply(ANSWER)
UNKNOWN = reply(b"{}", b"404 Not Found")


@dataclass(slots=True)
class Stats:
    """What was answered since the last look. Nanoseconds of this process's clock."""

    completions: int = 0
    first_ns: int = 0
    last_ns: int = 0


STATS = Stats()


class Instant(asyncio.Protocol):
    """Answers each complete request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._data += data
        while (end := self._data.find(END)) >= 0:
            head = self._data[:end]
            lower = head.lower()
            at = lower.find(LENGTH)
            length = int(lower[at + len(LENGTH) :].split(b"\r\n")[0]) if at >= 0 else 0
            if len(self._data) < end + len(END) + length:
                return
            self._data = self._data[end + len(END) + length :]
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        if head.startswith(b"POST /v1/chat/completions"):
            if not STATS.completions:
                STATS.first_ns = time.monotonic_ns()
            STATS.completions += 1
            self._transport.write(ANSWERED)
            STATS.last_ns = time.monotonic_ns()
        elif head.startswith(b"GET /v1/models"):
            self._transport.write(reply(MODELS))
        elif head.startswith(b"GET /bench/stats"):
            self._transport.write(reply(json.dumps(asdict(STATS)).encode()))
            STATS.completions = STATS.first_ns = STATS.last_ns = 0
        else:
            self._transport.write(UNKNOWN)


async def main() -> None:
    """Serve until stdin closes."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Instant, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
