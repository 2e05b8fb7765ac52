"""A fast loopback server of event streams, in a process of its own; ends with its stdin.

Not a model: every stream has the same events, written one by one. Prints its port.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
MODELS = json.dumps({"data": [{"id": "fake", "root": "fake", "max_model_len": 4096}]}).encode()


def chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(events: int) -> list[bytes]:
    """Return the chunks of a stream, its end included."""
    made: list[dict[str, Any]] = []
    for number in range(events):
        last = number == events - 1
        choice = {"index": 0, "text": f" w{number}", "finish_reason": "stop" if last else None}
        made.append({"id": "c", "model": "fake", "choices": [choice]})
    usage = {"prompt_tokens": 80, "completion_tokens": events}
    made.append({"id": "c", "model": "fake", "choices": [], "usage": usage})
    texts = [f"data: {json.dumps(event)}\n\n".encode() for event in made]
    return [*(chunk(text) for text in texts), chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"]


async def serve(
    parts: list[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer every request of a connection."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            at = head.find(b"content-length:")
            if at >= 0:
                await reader.readexactly(int(head[at + 15 :].split(b"\r\n")[0]))
            if head.startswith(b"post /v1/"):
                writer.write(HEAD)
                for part in parts:
                    writer.write(part)
                    await asyncio.sleep(0)
            elif head.startswith(b"get /v1/models"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(MODELS))
                writer.write(MODELS)
            else:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        writer.close()


async def main() -> None:
    """Serve until stdin closes."""
    parts = stream(int(sys.argv[1]))
    server = await asyncio.start_server(lambda r, w: serve(parts, r, w), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
