"""A loopback server that answers every POST at once with one fixed completion.

Not part of the product: it exists so that a client's own cost can be measured.
Prints its port and serves until its stdin closes.
"""

from __future__ import annotations

import asyncio
import json
import sys

ANSWER = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
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
REPLY = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
) + ANSWER
END = b"\r\n\r\n"
LENGTH = b"content-length:"


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
            head = self._data[:end].lower()
            at = head.find(LENGTH)
            length = int(head[at + len(LENGTH) :].split(b"\r\n")[0]) if at >= 0 else 0
            if len(self._data) < end + len(END) + length:
                return
            self._data = self._data[end + len(END) + length :]
            self._transport.write(REPLY)


async def main() -> None:
    """Serve until stdin closes."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Instant, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
