"""Run one launch: start the arm's server, run the cells that are wanted, stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from evalharness.factorial.cell_run import CellRequests, CellTools, FreeSince, run_cell
from evalharness.factorial.cells import PlannedCell, build_requests
from evalharness.manifest import Manifest
from evalharness.server import LaunchSpec, Server, open_server
from evalharness.store import make_directory
from evalharness.types import Case, Response


class Display(Protocol):
    """Whom the run tells how it goes."""

    def launch(self, arm: str, number: int) -> None:
        """A server is being started."""

    def ready(self, seconds: float | None) -> None:
        """The server is ready."""

    def cell(self, planned: PlannedCell) -> None:
        """A cell begins."""

    def response(self, response: Response) -> None:
        """A response came."""

    def cell_done(self, record: Mapping[str, Any]) -> None:
        """A cell ended; `record` is its cell record."""

    def note(self, text: str) -> None:
        """Something worth a line."""


@dataclass(frozen=True, slots=True)
class LaunchWork:
    """One launch and the cells wanted of it. Values only: an executor may send it elsewhere."""

    spec: LaunchSpec
    cells: tuple[PlannedCell, ...]
    manifest: Manifest
    cases: Mapping[str, Sequence[Case]]
    seed: int


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """How a launch went; `died` says that its server ended before its cells did."""

    records: tuple[Mapping[str, Any], ...]
    died: bool


async def run_launch(work: LaunchWork, tools: CellTools, display: Display) -> LaunchResult:
    """Run the wanted cells on a fresh server. The server is gone when this returns or raises.

    Raises ServerError where it does not become ready, StoreError or IncompleteError (disk).
    """
    make_directory(work.spec.folder)
    display.launch(work.spec.name, work.spec.number)
    server = await _unless_stopped(work.spec, tools.stop)
    if server is None:
        return LaunchResult((), died=False)
    display.ready(server.record["ready_s"])
    for factor, found in server.record["levels"].items():
        if found["in_effect"] is None:
            display.note(f"  not proved: {factor}={found['level']}: {found['evidence']}")
    records: list[Mapping[str, Any]] = []
    shop, free = _Requests(work), FreeSince()
    try:
        for planned in work.cells:
            if tools.stop.is_set():
                break
            requests = shop.of(planned)
            display.cell(planned)
            record = await run_cell(server, planned.key, requests, tools, free=free)
            display.cell_done(record)
            records.append(record)
            if record["state"] == "aborted":
                break
    finally:
        died = server.died is not None and server.died.is_set()
        aborted = bool(records) and records[-1]["state"] == "aborted"
        lost = died or (aborted and not tools.stop.is_set())
        # What stopped answering is not asked to end: it would use up the grace it is given.
        await asyncio.shield(server.stop(at_once=lost))
    return LaunchResult(tuple(records), died=lost)


class _Requests:
    """Requests of a launch, made once for all concurrency levels that ask the same cases."""

    def __init__(self, work: LaunchWork) -> None:
        self._work = work
        self._made: dict[tuple[str, str, int, int], CellRequests] = {}

    def of(self, planned: PlannedCell) -> CellRequests:
        """Return the cell's requests, ready to send."""
        key, work = planned.key, self._work
        name = (key.suite, key.mode, key.replicate, planned.cases)
        if name not in self._made:
            entry = work.manifest.entries[key.suite]
            requests = build_requests(
                entry,
                work.cases[entry.name],
                key,
                model=work.spec.arm.served_name,
                seed=work.seed,
            )
            self._made[name] = CellRequests(requests)
        return self._made[name]


async def _unless_stopped(spec: LaunchSpec, stop: asyncio.Event) -> Server | None:
    """Start the server, or give up (and leave nothing behind) once the user stops the run."""
    starting = asyncio.ensure_future(open_server(spec))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            return starting.result()
        return None
    finally:
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)


def launch_folder(run: Path, arm: str, number: int) -> Path:
    """Return RUN/arms/<arm>/<launch>."""
    return run / "arms" / arm / f"{number:03d}"
