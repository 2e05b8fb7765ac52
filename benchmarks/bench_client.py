#!/usr/bin/env python3
"""Our own cost: requests/s of client, loop and durable store against a bare aiohttp loop.

Both send the same requests at the same concurrency to a loopback server that answers at once,
and read the reply in chunks. `bare` does nothing else; `harness` also times, checks, encodes and
stores every response, and counts it only once it is synced to disk. Rounds alternate; the figure
is the median of the rounds' ratios. Timings are no test.

  python -m benchmarks.bench_client [--requests 1319] [--concurrency 16] [--rounds 15] [--json F]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from benchmarks.loopback import QUESTION, loopback_server
from evalharness.client import Client, Prepared
from evalharness.drive import drive
from evalharness.store import LineHead
from evalharness.store.writer import ResponseWriter
from evalharness.types import Request, canonical_json

KEY = "d41d8cd98f00b204e9800998ecf8427e"


@dataclass(frozen=True, slots=True)
class Round:
    """One pass over all requests: wall clock and CPU seconds of this process."""

    wall_s: float
    cpu_s: float


def make_requests(count: int) -> list[Prepared]:
    """Return requests about as long as GSM8K's (430 characters of question)."""
    return [
        Prepared(
            Request(
                f"case-{number:05d}",
                0,
                "/v1/chat/completions",
                canonical_json(
                    {
                        "model": "bench",
                        "messages": [{"role": "user", "content": f"{number}: {QUESTION}"}],
                        "max_tokens": 256,
                        "seed": number,
                    }
                ),
            )
        )
        for number in range(count)
    ]


async def bare(url: str, requests: Sequence[Prepared], width: int, _folder: Path) -> None:
    """Send and read, nothing else: the loop anyone would write."""
    queue = iter(requests)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    connector = aiohttp.TCPConnector(limit=width)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:

        async def worker() -> None:
            for prepared in queue:
                target = url + prepared.request.endpoint
                async with session.post(target, data=prepared.request.body_json.encode()) as reply:
                    chunks = [chunk async for chunk in reply.content.iter_any()]
                assert reply.status == 200 and chunks

        await asyncio.gather(*(worker() for _ in range(width)))


async def harness(url: str, requests: Sequence[Prepared], width: int, folder: Path) -> None:
    """The harness's own path, to the last fsync."""
    heads = HEADS  # made once for all arms and concurrency levels, as a run does
    writer = ResponseWriter(folder / f"{time.monotonic_ns()}.jsonl", heads)
    async with Client(url, model="bench", concurrency=width, api_key=KEY) as client:
        stats = await drive(requests, client.send, sink=writer, concurrency=width)
    await writer.close()
    assert stats.status_counts == {"ok": len(requests)}
    assert writer.acknowledged == len(requests)


HEADS: dict[str, LineHead] = {}
Runner = Callable[[str, Sequence[Prepared], int, Path], Awaitable[None]]


def measure(runner: Runner, url: str, requests: Sequence[Prepared], width: int) -> Round:
    """Run one round in an event loop of its own."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        start_s, cpu_s = time.perf_counter(), time.process_time()

        async def once() -> None:
            await runner(url, requests, width, Path(folder))

        asyncio.run(once())
        return Round(time.perf_counter() - start_s, time.process_time() - cpu_s)


def main() -> int:
    """Measure and print; writes the figures as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1319)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    requests = make_requests(args.requests)
    HEADS.update({one.request.case_id: LineHead(one.request, one.digest) for one in requests})
    rounds: dict[str, list[Round]] = {"bare": [], "harness": []}
    with loopback_server() as url:
        for number in range(args.rounds + 1):
            # The order alternates too, so that drift of the machine hits both alike.
            names = ("bare", "harness") if number % 2 else ("harness", "bare")
            for name in names:
                runner = bare if name == "bare" else harness
                found = measure(runner, url, requests, args.concurrency)
                if number:  # the first round warms up
                    rounds[name].append(found)
    report(rounds, args)
    return 0


def report(rounds: dict[str, list[Round]], args: argparse.Namespace) -> None:
    """Print the table."""
    ratios = [b.wall_s / h.wall_s for b, h in zip(rounds["bare"], rounds["harness"], strict=True)]
    cpu = [b.cpu_s / h.cpu_s for b, h in zip(rounds["bare"], rounds["harness"], strict=True)]
    figures = {
        "requests": args.requests,
        "concurrency": args.concurrency,
        "rounds": args.rounds,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {sys.version.split()[0]}",
        "load_1min": round(os.getloadavg()[0], 2),
        "max_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "ratio_of_bare": round(statistics.median(ratios), 3),
        "cpu_ratio_of_bare": round(statistics.median(cpu), 3),
    }
    for name, found in rounds.items():
        figures[f"{name}_requests_per_s"] = round(
            statistics.median(args.requests / one.wall_s for one in found)
        )
        figures[f"{name}_cpu_us_per_request"] = round(
            statistics.median(1e6 * one.cpu_s / args.requests for one in found), 1
        )
    for key, value in figures.items():
        print(f"{key:<28} {value}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
