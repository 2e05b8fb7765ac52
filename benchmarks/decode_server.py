"""A deterministic decode server on the loopback and a proxy that stretches its time.

Not a model: an engine that ticks. A tick takes `step_ms`, and `prefill_ms` more for each prompt it
admits; every running stream gets one token a tick, as a continuously batching server gives them.
The proxy forwards each piece of an answer at t0 + factor x (its arrival - t0), t0 being the
request's own: so every time of that server is stretched by the factor, nothing else is changed.

  python -m benchmarks.decode_server --factors 1.0,1.05    # prints the ports; ends with stdin
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
MODELS = json.dumps({"data": [{"id": "ticks", "root": "ticks", "max_model_len": 1 << 20}]})


@dataclass
class Stream:
    """One running request: its answer's chunks go into the queue as they are made."""

    tokens: int
    made: int = 0
    chunks: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)

    def token(self) -> bool:
        """Make one token; True when it was the last."""
        self.made += 1
        last = self.made == self.tokens
        usage = {"prompt_tokens": 64, "completion_tokens": self.made}
        choice = {"index": 0, "text": " w", "finish_reason": "length" if last else None}
        self._put({"id": "c", "model": "ticks", "choices": [choice], "usage": usage})
        if last:
            self._put({"id": "c", "model": "ticks", "choices": [], "usage": usage})
            self.chunks.put_nowait(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            self.chunks.put_nowait(None)
        return last

    def _put(self, event: object) -> None:
        self.chunks.put_nowait(_chunk(f"data: {json.dumps(event)}\n\n".encode()))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Engine:
    """Ticks while there is work."""

    def __init__(self, *, step_ms: float, prefill_ms: float) -> None:
        self._step_s, self._prefill_s = step_ms / 1e3, prefill_ms / 1e3
        self._waiting: list[Stream] = []
        self._work = asyncio.Event()

    def add(self, stream: Stream) -> None:
        """Take a request; the next tick admits it."""
        self._waiting.append(stream)
        self._work.set()

    async def run(self) -> None:
        """Tick until cancelled.

        A timer that is a little late does not make the next tick late; a stall does, since an
        engine cannot make up for steps that it did not compute.
        """
        running: list[Stream] = []
        while True:
            if not running and not self._waiting:
                self._work.clear()
                await self._work.wait()
                due_s = time.monotonic()
            admitted, self._waiting = self._waiting, []
            running += admitted
            due_s = max(due_s, time.monotonic() - self._step_s / 2)
            due_s += self._step_s + self._prefill_s * len(admitted)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            running = [stream for stream in running if not stream.token()]


async def serve(engine: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request of one connection."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            at = head.lower().find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
            body = await reader.readexactly(size)
            if head.startswith(b"POST /v1/completions") and b'"stream":true' in body:
                await _completion(engine, json.loads(body), writer)
            elif head.startswith(b"GET /v1/models"):
                _plain(writer, "200 OK", MODELS)
            elif head.startswith(b"POST /v1/completions"):
                _plain(writer, "200 OK", _whole(json.loads(body)))
            else:
                _plain(writer, "404 Not Found", "{}")
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        writer.close()


def _plain(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
    writer.write(f"{head}\r\n\r\n{text}".encode())


def _whole(body: dict[str, object]) -> str:
    usage = {"prompt_tokens": 1, "completion_tokens": body.get("max_tokens", 1)}
    choice = {"index": 0, "text": "w", "finish_reason": "length"}
    return json.dumps({"id": "c", "model": "ticks", "choices": [choice], "usage": usage})


async def _completion(engine: Engine, body: dict[str, int], writer: asyncio.StreamWriter) -> None:
    stream = Stream(body["max_tokens"])
    engine.add(stream)
    writer.write(HEAD)
    while (chunk := await stream.chunks.get()) is not None:
        writer.write(chunk)
        await writer.drain()


async def stretch(
    upstream: int, factor: float, client: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Pass one connection on, its answers' time stretched."""
    reader, writer = client
    server = await asyncio.open_connection("127.0.0.1", upstream)
    began_s = [time.monotonic()]
    late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def upwards() -> None:
        while data := await reader.read(1 << 16):
            began_s[0] = time.monotonic()
            server[1].write(data)
            await server[1].drain()
        server[1].close()

    async def arrivals() -> None:
        while data := await server[0].read(1 << 16):
            now_s = time.monotonic()
            late.put_nowait((began_s[0] + factor * (now_s - began_s[0]), data))
        late.put_nowait((0.0, b""))

    async def downwards() -> None:
        while True:
            due_s, data = await late.get()
            if not data:
                writer.close()
                return
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            writer.write(data)
            await writer.drain()

    try:
        await asyncio.gather(upwards(), arrivals(), downwards())
    except OSError:
        writer.close()


async def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until stdin closes; prints the port of each proxy, in the order of the factors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--factors", default="1.0", help="one proxy each")
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--prefill-ms", type=float, default=1.0)
    args = parser.parse_args(arguments)
    engine = Engine(step_ms=args.step_ms, prefill_ms=args.prefill_ms)
    ticking = asyncio.ensure_future(engine.run())
    server = await asyncio.start_server(lambda r, w: serve(engine, r, w), "127.0.0.1", 0)
    upstream = server.sockets[0].getsockname()[1]
    proxies = [
        await asyncio.start_server(
            lambda r, w, factor=float(text): stretch(upstream, factor, (r, w)), "127.0.0.1", 0
        )
        for text in args.factors.split(",")
    ]
    print(*(proxy.sockets[0].getsockname()[1] for proxy in proxies), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    ticking.cancel()


if __name__ == "__main__":
    asyncio.run(main())
