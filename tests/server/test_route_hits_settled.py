"""The last steps are in the route-hit files before a server is stopped."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from evalharness.server.facts import route_hits_settled

LAST = 10**6


def written(path: Path, hits: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"format": "evalharness/route_hits/1", "routes": [{"hits": hits}]}))


async def write_for(path: Path, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end_s:
        count += 1
        written(path, count)
        await asyncio.sleep(0.2)
    written(path, LAST)


async def test_waits_for_the_last_write(tmp_path: Path) -> None:
    path = tmp_path / "route_hits" / "rank1.json"
    written(path, 0)
    writing = asyncio.create_task(write_for(path, 1.5))
    await route_hits_settled(tmp_path)
    assert json.loads(path.read_text())["routes"] == [{"hits": LAST}]
    await writing


async def test_no_routes_no_wait(tmp_path: Path) -> None:
    started_s = time.monotonic()
    await route_hits_settled(tmp_path)
    assert time.monotonic() - started_s < 0.5


async def test_a_file_that_never_rests_does_not_hold_the_run(tmp_path: Path) -> None:
    path = tmp_path / "route_hits" / "rank0.json"
    written(path, 0)
    writing = asyncio.create_task(write_for(path, 60))
    await asyncio.wait_for(route_hits_settled(tmp_path), 15)
    writing.cancel()
