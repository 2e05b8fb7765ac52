"""On a node: run one launch in a scratch folder and hand on what it keeps, batch by batch.

Nothing of Ray here: a launch is a generator that a task iterates. The launch's own event loop
runs in a thread, since the generator's thread belongs to whoever iterates.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalharness.cluster.following import Follower
from evalharness.cluster.values import Batch, LaunchJob, Piece, Said, Shared
from evalharness.errors import HarnessError
from evalharness.factorial.cell_run import CellTools
from evalharness.factorial.cells import PlannedCell
from evalharness.factorial.launch_run import LaunchWork, run_launch
from evalharness.factorial.open_files import require_open_files
from evalharness.factorial.prompts import PromptBook
from evalharness.server.node import visible
from evalharness.server.process import kill_marked
from evalharness.store import make_directory
from evalharness.types import Response

BEAT_S = 0.1
POLL_S = 0.2
# Batches that wait for the driver; beyond them the launch's files wait on the node's disk.
MAX_WAITING = 8


def scratch_root() -> Path:
    """Return the folder of this node under which launches keep their files while they run."""
    return Path(tempfile.gettempdir()) / f"evalharness-{os.getuid()}"


def carry_out(job: LaunchJob, shared: Shared, placement: Mapping[str, Any]) -> Iterator[Batch]:
    """Run the launch; yields what it kept and said, the last batch with its end.

    Interrupted (KeyboardInterrupt) it stops as on Ctrl-C and still yields the rest. The server
    is gone and the scratch folder removed when this ends, however it does.
    """
    with contextlib.suppress(OSError):
        os.chdir(job.working_directory)
    root = scratch_root() / job.folder
    clear_leftovers(job, root)
    scratch = root / f"{job.session}.{job.spec.number:03d}"
    launch = _Launch(job, shared, scratch, placement)
    thread = threading.Thread(target=launch.main, name="launch", daemon=True)
    thread.start()
    try:
        yield from launch.batches()
    finally:
        launch.stop()
        for _ in launch.batches():
            pass  # nobody listens any more; the launch must not wait for anybody
        thread.join()
        shutil.rmtree(scratch, ignore_errors=True)
    if launch.failure is not None:
        raise launch.failure


def run_mark(folder: str, session: str, number: int) -> str:
    """Return the mark of a launch's processes on a node: run, session, launch."""
    return f"{folder}#{session}.{number:03d}"


def clear_leftovers(job: LaunchJob, root: Path) -> None:
    """End what earlier sessions of this run, or lost launches of this one, left on the node."""
    lost = {f"{job.session}.{number:03d}" for number in job.lost}

    def leftover(launch: str) -> bool:
        return not launch.startswith(f"{job.session}.") or launch in lost

    kill_marked(lambda mark: mark.startswith(f"{job.folder}#") and leftover(mark.split("#")[1]))
    for path in root.glob("*"):
        if leftover(path.name):
            shutil.rmtree(path, ignore_errors=True)


class _Launch:
    """One launch in a thread of its own; `failure` is what nobody foresaw."""

    def __init__(
        self, job: LaunchJob, shared: Shared, scratch: Path, placement: Mapping[str, Any]
    ) -> None:
        self.failure: BaseException | None = None
        self._scratch = scratch
        self._settings = job.settings
        spec = dataclasses.replace(
            job.spec,
            folder=scratch / job.spec.folder,
            run_mark=run_mark(job.folder, job.session, job.spec.number),
            placement=placement,
            gpu_baseline=visible(job.spec.gpu_baseline or [], ",".join(placement["gpu_ids"])),
        )
        self._work = LaunchWork(spec, job.cells, shared.manifest, shared.cases, job.seed)
        self._queue: queue.Queue[Batch | None] = queue.Queue(MAX_WAITING)
        self._ended = False
        self._stopping = threading.Event()

    def batches(self) -> Iterator[Batch]:
        """Yield until the launch has ended; once interrupted, the launch stops and yields on."""
        while not self._ended:
            try:
                batch = self._queue.get(timeout=POLL_S)
            except queue.Empty:
                continue
            except KeyboardInterrupt:
                self.stop()
                continue
            if batch is None:
                self._ended = True
            else:
                yield batch

    def stop(self) -> None:
        """Stop the launch as Ctrl-C does; again is harmless."""
        self._stopping.set()

    def main(self) -> None:
        """The thread's work."""
        try:
            make_directory(self._scratch)
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 - raised again in the generator's thread
            self.failure = error
        finally:
            self._queue.put(None)

    async def _run(self) -> None:
        stop, over = asyncio.Event(), asyncio.Event()
        follower = Follower(self._scratch)
        said: list[Said] = []
        tools = CellTools(self._scratch, self._settings, PromptBook(), stop, _ignore)
        beating = asyncio.ensure_future(self._beat(follower, said, stop=stop, over=over))
        try:
            require_open_files(max(cell.key.concurrency for cell in self._work.cells))
            result = await run_launch(self._work, tools, _Telling(said))
            end = Said("end", died=result.died)
        except HarnessError as error:
            # Its files have landed in RUN by the time that anybody reads this.
            text = str(error).replace(f"{self._scratch}/", "RUN/")
            end = Said("error", text, error_exit=error.exit_code)
        finally:
            over.set()
            await beating
        pieces = await asyncio.to_thread(follower.take)
        await asyncio.to_thread(self._queue.put, (*pieces, *said, end))

    async def _beat(
        self, follower: Follower, said: list[Said], *, stop: asyncio.Event, over: asyncio.Event
    ) -> None:
        while not over.is_set():
            if self._stopping.is_set():
                stop.set()
            words, said[:] = tuple(said), []
            await asyncio.to_thread(self._hand_on, follower, words)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), BEAT_S)

    def _hand_on(self, follower: Follower, words: tuple[Said, ...]) -> None:
        batch: tuple[Piece | Said, ...] = (*follower.take(), *words)
        if batch:
            self._queue.put(batch)


class _Telling:
    """The launch's display: what is worth a line goes to the driver."""

    def __init__(self, said: list[Said]) -> None:
        self._said = said

    def launch(self, arm: str, number: int) -> None:
        """The driver has said so already."""

    def ready(self, seconds: float | None) -> None:
        """See Display."""
        self._said.append(Said("ready", seconds=seconds))

    def cell(self, planned: PlannedCell) -> None:
        """The driver sees its record."""

    def response(self, response: Response) -> None:
        """The driver sees its line."""

    def cell_done(self, record: Mapping[str, Any]) -> None:
        """The driver sees its record."""

    def note(self, text: str) -> None:
        """See Display."""
        self._said.append(Said("note", text))


def _ignore(_response: Response) -> None:
    return None
