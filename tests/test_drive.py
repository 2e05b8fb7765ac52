"""The closed loop: exactly C in flight, a fixed order, and a prompt end on stop or error."""

from __future__ import annotations

import asyncio
import random

import pytest

from evalharness.drive import LagMeter, RunningSampler, drive, running_beside
from evalharness.types import Response

FIELDS = ("digest", "/v1/completions", "{}", "ok", 200, "{}", "utf-8", None, 1, 2, 3)


def response(number: int, in_flight: int) -> Response:
    return Response(f"c{number}", 0, *FIELDS, in_flight)  # type: ignore[arg-type]


class Kept:
    """A sink in memory."""

    def __init__(self) -> None:
        self.responses: list[Response] = []
        self.full = False
        self.drained = 0

    def append(self, item: Response) -> None:
        self.responses.append(item)

    async def drain(self) -> None:
        self.drained += 1
        self.full = False


@pytest.mark.parametrize(("count", "width"), [(1, 1), (50, 1), (50, 4), (50, 16), (3, 16)])
async def test_exactly_c_until_fewer_remain(count: int, width: int) -> None:
    order: list[int] = []
    seen: list[int] = []
    now = 0

    async def send(number: int, in_flight: int) -> Response:
        nonlocal now
        now += 1
        order.append(number)
        seen.append(now)
        assert now == in_flight <= width
        await asyncio.sleep(random.random() * 0.004)
        now -= 1
        return response(number, in_flight)

    sink = Kept()
    stats = await drive(range(count), send, sink=sink, concurrency=width)
    assert order == list(range(count))
    assert sorted(r.case_id for r in sink.responses) == sorted(f"c{n}" for n in range(count))
    ramp = min(width, count)
    assert seen[:ramp] == list(range(1, ramp + 1))
    assert all(found == ramp for found in seen[ramp:])
    assert stats.status_counts == {"ok": count}
    if count > width:
        assert stats.concurrency_reached == pytest.approx(width, rel=0.1)
        assert stats.idle_share is not None and stats.idle_share < 0.2
    else:
        assert stats.concurrency_reached is None or count == width


async def test_stop_ends_at_once_and_keeps_what_came() -> None:
    stop = asyncio.Event()

    async def send(number: int, in_flight: int) -> Response:
        if number == 5:
            stop.set()
            await asyncio.sleep(60)
        await asyncio.sleep(0)
        return response(number, in_flight)

    sink = Kept()
    await asyncio.wait_for(drive(range(100), send, sink=sink, concurrency=1, stop=stop), 5)
    assert [r.case_id for r in sink.responses] == [f"c{n}" for n in range(5)]


async def test_an_error_of_the_sink_ends_the_drive() -> None:
    class Broken(Kept):
        def append(self, item: Response) -> None:
            raise OSError("disk full")

    async def send(number: int, in_flight: int) -> Response:
        await asyncio.sleep(0.001)
        return response(number, in_flight)

    with pytest.raises(OSError, match="disk full"):
        await asyncio.wait_for(drive(range(100), send, sink=Broken(), concurrency=4), 5)


async def test_a_full_sink_holds_the_senders() -> None:
    sink = Kept()

    async def send(number: int, in_flight: int) -> Response:
        sink.full = number % 5 == 0
        return response(number, in_flight)

    await drive(range(20), send, sink=sink, concurrency=1)
    assert sink.drained == 4


async def test_samplers_run_beside_and_end_with_the_block() -> None:
    lag = LagMeter()
    values = iter(range(1000))

    async def read() -> int | None:
        value = next(values)
        return None if value == 1 else value

    sampler = RunningSampler(read, 0.02)
    async with running_beside(lag.run, sampler.run):
        await asyncio.sleep(0.3)
    taken = len(sampler.samples)
    assert taken > 3
    assert 1 not in sampler.samples
    assert lag.p99_ms() is not None
    await asyncio.sleep(0.1)
    assert len(sampler.samples) == taken
