"""Closed loop: exactly C requests in flight until fewer than C remain, in a fixed order.

What runs beside the loop watches it: the server's own count of running requests, and how late
the event loop is (a late loop measures itself, not the server).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from evalharness.types import Response

_T = TypeVar("_T")
Send = Callable[[_T, int], Awaitable[Response]]
LAG_PERIOD_S = 0.05
MAX_SAMPLES = 2_000


class Sink(Protocol):
    """Where responses go: the store."""

    def append(self, response: Response) -> None:
        """Take one response."""

    @property
    def full(self) -> bool:
        """True while senders should wait for the disk."""

    async def drain(self) -> None:
        """Wait until all that was taken is on disk."""


@dataclass(slots=True)
class DriveStats:
    """How a drive went. Shares and the mean cover the time before its tail only.

    concurrency_reached: time-weighted mean of requests in flight while at least C remained;
    idle_share: share of that time with fewer than C in flight; None where there was no such time.
    cpu_share: this thread's CPU seconds per second of wall clock.
    """

    status_counts: Counter[str] = field(default_factory=Counter)
    wall_s: float = 0.0
    concurrency_reached: float | None = None
    idle_share: float | None = None
    cpu_share: float = 0.0


class _Gauge:
    """Requests in flight, integrated from when C are in flight until the last one was sent."""

    __slots__ = (
        "_area_ns",
        "_concurrency",
        "_full",
        "_idle_ns",
        "_last_ns",
        "_span_ns",
        "count",
        "open",
    )

    def __init__(self, concurrency: int) -> None:
        self.count = 0
        self.open = True
        self._concurrency = concurrency
        self._last_ns = 0
        self._full = False
        self._area_ns = self._idle_ns = self._span_ns = 0

    def change(self, step: int) -> int:
        """Add to the count and return the new one."""
        now_ns = time.monotonic_ns()
        if self.open and self._full:
            passed_ns = now_ns - self._last_ns
            self._span_ns += passed_ns
            self._area_ns += passed_ns * self.count
            if self.count < self._concurrency:
                self._idle_ns += passed_ns
        self._last_ns = now_ns
        self.count += step
        self._full = self._full or self.count >= self._concurrency
        return self.count

    def reached(self) -> float | None:
        return self._area_ns / self._span_ns if self._span_ns else None

    def idle(self) -> float | None:
        return self._idle_ns / self._span_ns if self._span_ns else None


async def drive(
    requests: Sequence[_T],
    send: Send[_T],
    *,
    sink: Sink,
    concurrency: int,
    stop: asyncio.Event | None = None,
    on_response: Callable[[Response], None] | None = None,
) -> DriveStats:
    """Send all requests and hand every response to the sink.

    stop: once set, nothing more is sent and what is in flight is dropped; the responses that
    came are in the sink, and the caller sees fewer than it asked for. Raises what the sink raises.
    """
    gauge = _Gauge(concurrency)
    stats = DriveStats()
    queue = iter(requests)
    left = _Countdown(len(requests))

    async def worker() -> None:
        for request in queue:
            left.take(gauge)
            response = await send(request, gauge.change(+1))
            gauge.change(-1)
            stats.status_counts[response.status] += 1
            sink.append(response)
            if on_response is not None:
                on_response(response)
            if sink.full:
                await sink.drain()

    start_s, cpu_s = time.monotonic(), time.thread_time()
    workers = [asyncio.ensure_future(worker()) for _ in range(min(concurrency, len(requests)))]
    await _finish(workers, stop)
    stats.wall_s = time.monotonic() - start_s
    stats.cpu_share = (time.thread_time() - cpu_s) / stats.wall_s if stats.wall_s else 0.0
    stats.concurrency_reached, stats.idle_share = gauge.reached(), gauge.idle()
    return stats


class _Countdown:
    """Closes the gauge as the last request leaves: from then on fewer than C remain."""

    def __init__(self, count: int) -> None:
        self._left = count

    def take(self, gauge: _Gauge) -> None:
        self._left -= 1
        if self._left == 0:
            gauge.change(0)
            gauge.open = False


async def _finish(workers: Sequence[asyncio.Future[None]], stop: asyncio.Event | None) -> None:
    """Wait for all workers; on stop or on the first error, cancel the others."""
    stopped = asyncio.ensure_future(stop.wait()) if stop is not None else None
    waiting = set(workers)
    try:
        while waiting:
            watched: set[asyncio.Future[Any]] = {*waiting, *([stopped] if stopped else [])}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if stopped is not None and stopped.done():
                return
            for task in [task for task in waiting if task.done()]:
                task.result()
                waiting.discard(task)
    finally:
        for worker in workers:
            worker.cancel()
        if stopped is not None:
            stopped.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


class LagMeter:
    """Measures how late the event loop wakes, in milliseconds."""

    def __init__(self) -> None:
        self._lags_ms: list[float] = []

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(LAG_PERIOD_S)
            lag_ms = (time.monotonic() - before_s - LAG_PERIOD_S) * 1e3
            _keep(self._lags_ms, max(0.0, lag_ms))

    def p99_ms(self) -> float | None:
        """Return the 99th percentile, or None without a measurement."""
        if not self._lags_ms:
            return None
        ordered = sorted(self._lags_ms)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 3)


class RunningSampler:
    """Samples the server's own count of running requests; a failed read is no sample."""

    def __init__(self, read: Callable[[], Awaitable[int | None]], period_s: float) -> None:
        self.samples: list[int] = []
        self._read = read
        self._period_s = period_s

    async def run(self) -> None:
        """Sample until cancelled; the first sample after a quarter period."""
        await asyncio.sleep(self._period_s / 4)
        while True:
            running = await self._read()
            if running is not None:
                _keep(self.samples, running)
            await asyncio.sleep(self._period_s)


def _keep(samples: list[_T], value: _T) -> None:
    samples.append(value)
    if len(samples) > MAX_SAMPLES:
        del samples[::2]  # hours long: keep every second one, so memory stays flat


@contextlib.asynccontextmanager
async def running_beside(*jobs: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run the jobs beside the block and end them with it."""
    tasks = [asyncio.ensure_future(job()) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
