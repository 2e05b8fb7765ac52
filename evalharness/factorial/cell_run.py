"""Run one cell: reset the cache, drive the requests, keep the responses, write the record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalharness.client import Client, Prepared
from evalharness.drive import DriveStats, LagMeter, RunningSampler, drive, running_beside
from evalharness.errors import IncompleteError, StoreError
from evalharness.factorial.cells import cell_record, record_file, responses_file
from evalharness.factorial.prompts import CellTotals, PromptBook, read_back
from evalharness.server import Server
from evalharness.store import LineHead, make_directory, write_json
from evalharness.store.writer import ResponseWriter
from evalharness.types import CellKey, Request, Response

SAMPLE_PERIOD_S = 1.0
# A client this busy, or a loop this late, measures itself rather than the server.
BUSY_CPU_SHARE = 0.8
LATE_LOOP_MS = 100.0


@dataclass(frozen=True, slots=True)
class CellSettings:
    """Bounds of every request of the run; part of the plan."""

    request_timeout_s: float
    max_body_bytes: int
    trust_env: bool


class CellRequests:
    """A cell's requests, ready to send, and the ready-made beginnings of their lines."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.prepared = [Prepared(request) for request in requests]
        self.heads = {
            item.request.case_id: LineHead(item.request, item.digest) for item in self.prepared
        }

    def __len__(self) -> int:
        return len(self.prepared)


@dataclass(frozen=True, slots=True)
class CellTools:
    """What the cells of a run share: where to write, when to stop, whom to tell."""

    run: Path
    settings: CellSettings
    prompts: PromptBook
    stop: asyncio.Event
    on_response: Callable[[Response], None]


class FreeSince:
    """When a launch's server last became free: ready, or done with a cell's last request."""

    def __init__(self) -> None:
        self.at_s = time.monotonic()

    def mark(self) -> None:
        """Note that it is free now."""
        self.at_s = time.monotonic()

    def waited_s(self) -> float:
        """Return the seconds since then."""
        return time.monotonic() - self.at_s


async def run_cell(
    server: Server,
    key: CellKey,
    requests: CellRequests,
    tools: CellTools,
    *,
    free: FreeSince | None = None,
) -> dict[str, Any]:
    """Run a cell whole and return its record; the record is on disk before this returns.

    The state is `complete` only if every response is on disk, the cache reset worked, the server
    lived, and the prompts are the other arms' prompts. Raises StoreError, IncompleteError (disk).
    """
    launch = server.spec.folder.name
    responses = responses_file(tools.run, key, launch)
    make_directory(responses.parent)
    record = cell_record(key, server.spec.number, state="aborted")
    record["reason"] = "the harness ended before the cell was complete"
    record["expected_rows"] = len(requests)
    record["started_utc"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    record["prefix_cache_reset"] = await server.reset_prefix_cache()
    # Our own servers have the reset; one without it would carry state from cell to cell.
    lacking = record["prefix_cache_reset"] == "not-supported" and server.process is not None
    if record["prefix_cache_reset"] == "failed" or lacking:
        record["state"] = "incomplete"
        record["reason"] = "the prefix cache could not be reset before the cell"
        write_json(record_file(responses), record)
        return record
    write_json(record_file(responses), record)
    free = free or FreeSince()
    record["waited_s"] = round(free.waited_s(), 3)
    try:
        driven = await _drive(server, responses, requests, tools, record)
    except (IncompleteError, StoreError) as error:
        record.update(state="aborted", reason=str(error))
        _try_record(responses, record)
        raise
    free.mark()
    _fill(record, driven)
    totals = await asyncio.to_thread(read_back, responses)
    record.update(
        rows=totals.rows, prompt_tokens=totals.prompt_tokens, output_tokens=totals.output_tokens
    )
    state, reason = await _state(server, key, len(requests), totals, tools, driven)
    record.update(state=state, reason=reason)
    write_json(record_file(responses), record)
    return record


def _try_record(responses: Path, record: dict[str, Any]) -> None:
    try:
        write_json(record_file(responses), record)
    except StoreError:
        return  # the disk is what failed; the next run finds the file without a record


async def _drive(
    server: Server,
    responses: Path,
    requests: CellRequests,
    tools: CellTools,
    record: dict[str, Any],
) -> _Driven:
    lag, sampler = LagMeter(), RunningSampler(server.api.running, SAMPLE_PERIOD_S)
    concurrency = int(record["concurrency"])
    client = Client(
        server.base_url,
        model=server.spec.arm.served_name,
        concurrency=concurrency,
        api_key=server.api_key,
        timeout_s=tools.settings.request_timeout_s,
        max_body_bytes=tools.settings.max_body_bytes,
        trust_env=tools.settings.trust_env,
    )
    writer = ResponseWriter(responses, requests.heads)
    halt = _Halt(server, tools, concurrency)
    try:
        async with client, running_beside(lag.run, sampler.run), halt:
            stats = await drive(
                requests.prepared,
                client.send,
                sink=writer,
                concurrency=concurrency,
                stop=halt.event,
                on_response=halt.take,
            )
    finally:
        record["responses_sha256"] = await writer.close()
    return _Driven(stats, lag.p99_ms(), sampler.samples, halt.hangs)


@dataclass(frozen=True, slots=True)
class _Driven:
    """How a drive went, and what was measured beside it."""

    stats: DriveStats
    lag_ms: float | None
    running: list[int]
    hangs: bool


class _Halt:
    """Stops the drive when the user stops the run, the server ends, or it hangs.

    It hangs when so many requests in a row time out that every stream has, twice: going on
    would wait out the timeout of every case that is left.
    """

    def __init__(self, server: Server, tools: CellTools, concurrency: int) -> None:
        self.hangs = False
        self.event = asyncio.Event()
        self._events = [tools.stop, *([server.died] if server.died is not None else [])]
        self._tasks: list[asyncio.Task[None]] = []
        self._on_response = tools.on_response
        self._patience = 2 * concurrency
        self._timeouts = 0

    def take(self, response: Response) -> None:
        """See a response pass."""
        self._on_response(response)
        self._timeouts = self._timeouts + 1 if response.status == "timeout" else 0
        if self._timeouts >= self._patience:
            self.hangs = True
            self.event.set()

    async def __aenter__(self) -> _Halt:
        self._tasks = [asyncio.ensure_future(self._watch(event)) for event in self._events]
        return self

    async def _watch(self, event: asyncio.Event) -> None:
        await event.wait()
        self.event.set()

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _fill(record: dict[str, Any], driven: _Driven) -> None:
    stats, lag_ms = driven.stats, driven.lag_ms
    busy = stats.cpu_share > BUSY_CPU_SHARE and stats.wall_s > 1.0
    record.update(
        wall_s=round(stats.wall_s, 3),
        status_counts=dict(sorted(stats.status_counts.items())),
        running_samples=driven.running,
        concurrency_reached=_round(stats.concurrency_reached),
        idle_share=_round(stats.idle_share),
        loop_lag_ms_p99=lag_ms,
        client_bound=bool(busy or (lag_ms or 0.0) > LATE_LOOP_MS),
    )


def _round(value: float | None) -> float | None:
    return round(value, 4) if value is not None else None


async def _state(
    server: Server,
    key: CellKey,
    expected: int,
    totals: CellTotals,
    tools: CellTools,
    driven: _Driven,
) -> tuple[str, str]:
    """Return the cell's state and the reason where it is not complete."""
    if tools.stop.is_set() and totals.rows < expected:
        return "aborted", "stopped by the user"
    if driven.hangs and totals.rows < expected:
        return "aborted", "the server hangs: every stream timed out twice in a row"
    counts = driven.stats.status_counts
    failed = counts["transport_error"] or counts["http_error"] or counts["timeout"]
    if failed or totals.rows < expected:
        # A hang that began with the cell's last requests is not that cell's answer. The death of
        # a process is told a moment after its connections break; the front end of a dead engine
        # answers 500 for a while.
        await asyncio.sleep(0.5 if server.process is not None else 0.0)
        if not await server.alive():
            return "aborted", "the server ended or stopped answering during the cell"
    if totals.rows != expected:
        return "aborted", f"{totals.rows} of {expected} responses are on disk"
    difference = tools.prompts.compare(key, totals.prompts)
    return ("incomplete", difference) if difference else ("complete", "")
