"""Many streams against a loopback server through the product's own cell: rows, memory, lag.

  python -m tests.reliability.load --requests 20000 --width 64            # about a minute
  python -m tests.reliability.load --soak-s 1800 --width 64               # the 30 minute soak

The harness side (client, loop, store, record, reading back) runs in this process, whose memory is
what is measured; the server runs in a process of its own. A soak repeats cells until its time is
over. Prints one JSON object; exits 1 if a row was lost or doubled, or memory went over its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evalharness.factorial.cell_run import CellRequests, CellSettings, CellTools, run_cell
from evalharness.factorial.prompts import PromptBook
from evalharness.server import LaunchSpec, open_server
from evalharness.store import iter_responses
from evalharness.types import Arm, CellKey, Request, canonical_json
from tests.child_server import child_server
from tests.reliability.tally import Tally

MAX_RSS_MIB = 300
QUESTION = "A shop sells pens at 3 for 2 coins and books at 7 coins each; " * 4
EVENTS = 12


def _peak_mib() -> int:
    """Peak resident memory. Not ru_maxrss: there a child starts with its parent's peak."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def rss_mib() -> float:
    """Return this process's resident memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / (1 << 20)


def make_requests(count: int) -> CellRequests:
    """Return distinct streamed requests about as long as GSM8K's."""
    return CellRequests([_request(number) for number in range(count)])


def _request(number: int) -> Request:
    body = {
        "model": "fake",
        "prompt": f"{number}: {QUESTION}",
        "max_tokens": 64,
        "seed": number,
        "stream": True,
    }
    return Request(f"case-{number:06d}", 0, "/v1/completions", canonical_json(body), True)


@contextmanager
def stream_server() -> Iterator[str]:
    """Run the streaming server in a process of its own; yields its URL."""
    command = [sys.executable, "-m", "tests.reliability.stream_server", str(EVENTS)]
    with child_server(command) as (port,):
        yield f"http://127.0.0.1:{port}"


class Watch:
    """Samples memory at shares of the run, to tell flat from growing."""

    def __init__(self, total: int) -> None:
        self.marks = {max(1, total * part // 100): part for part in (10, 25, 50, 75, 100)}
        self.seen = 0
        self.mib: dict[int, float] = {}

    def __call__(self, _response: object) -> None:
        self.seen += 1
        part = self.marks.get(self.seen)
        if part is not None:
            self.mib[part] = round(rss_mib(), 1)


async def one_cell(
    folder: Path, url: str, requests: CellRequests, *, width: int, number: int
) -> dict[str, Any]:
    """Run one cell and return its record with the memory at shares of it."""
    arm = Arm("control", (), (), (), None, "fake", None, url, None, digest="0" * 64)
    place = folder / f"{number:03d}"
    place.mkdir()
    spec = LaunchSpec(arm, "control", number, place, {}, {}, 60.0, "load")
    watch = Watch(len(requests))
    settings = CellSettings(120.0, 64 << 20, False)
    tools = CellTools(folder, settings, PromptBook(), asyncio.Event(), watch)
    server = await open_server(spec)
    try:
        key = CellKey("control", "gsm8k", "chat", width, 0)
        record = await run_cell(server, key, requests, tools)
    finally:
        await server.stop()
    return {**record, "memory_mib": watch.mib}


def check_rows(folder: Path, wanted: int, number: int, tally: Tally) -> None:
    """Check that every case stands exactly once in the cell's file."""
    path = folder / "responses" / "control" / f"{number:03d}"
    counts: Counter[str] = Counter()
    for file in path.glob("*.jsonl"):
        counts.update(stored.response.case_id for stored in iter_responses(file))
    tally.times += wanted
    lost, doubled = wanted - len(counts), sum(counts.values()) - len(counts)
    tally.lost += lost + doubled
    if lost or doubled:
        tally.notes.append(f"cell {number}: {lost} lost, {doubled} doubled")


def load(requests: int, width: int, soak_s: float = 0.0) -> tuple[Tally, dict[str, Any]]:
    """Run one cell, or cells until the soak is over; returns the tally and the figures."""
    tally = Tally(f"load: {width} streams, {requests} requests a cell")
    prepared = make_requests(requests)
    records: list[dict[str, Any]] = []
    start_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name, stream_server() as url:
        folder = Path(name)
        while not records or time.monotonic() - start_s < soak_s:
            number = len(records) + 1
            cell = one_cell(folder, url, prepared, width=width, number=number)
            records.append(asyncio.run(cell))
            check_rows(folder, requests, number, tally)
            for file in folder.glob("responses/*/*/*.jsonl"):
                file.unlink()
    figures = _figures(records, time.monotonic() - start_s)
    states = {record["state"] for record in records}
    tally.check(states == {"complete"}, f"states {states}: {records[-1]['reason']}")
    tally.check(figures["statuses"] == ["ok"], f"statuses {figures['statuses']}")
    tally.check(figures["max_rss_mib"] < MAX_RSS_MIB, f"{figures['max_rss_mib']} MiB")
    return tally, figures


def _figures(records: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    rows, wall_s = sum(r["rows"] for r in records), sum(r["wall_s"] for r in records)
    return {
        "cells": len(records),
        "rows": rows,
        "seconds": round(seconds, 1),
        "requests_per_s": round(rows / wall_s),
        "statuses": sorted({status for r in records for status in r["status_counts"]}),
        "memory_mib_at_percent_of_first_cell": records[0]["memory_mib"],
        "memory_mib_at_percent_of_last_cell": records[-1]["memory_mib"],
        "max_rss_mib": _peak_mib(),
        "loop_lag_ms_p99_worst": max(r["loop_lag_ms_p99"] or 0.0 for r in records),
        "concurrency_reached_least": min(r["concurrency_reached"] or 0.0 for r in records),
        "cells_flagged_client_bound": sum(r["client_bound"] for r in records),
    }


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--soak-s", type=float, default=0.0, metavar="S")
    args = parser.parse_args()
    tally, figures = load(args.requests, args.width, args.soak_s)
    out = {"times": tally.times, "lost": tally.lost, "wrong": tally.wrong, "notes": tally.notes}
    sys.stdout.write(json.dumps({**out, **figures}, indent=1) + "\n")
    return 0 if tally.clean else 1


if __name__ == "__main__":
    sys.exit(main())
