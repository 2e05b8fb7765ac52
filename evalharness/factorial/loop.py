"""The run's loop: what is complete, what is still wanted, and how the run stands at its end."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from evalharness.arms import ArmsFile
from evalharness.errors import EXIT_INCOMPLETE, EXIT_OK, EXIT_SERVER, HarnessError, ServerError
from evalharness.factorial.cell_run import CellTools
from evalharness.factorial.cells import close_unfinished, complete_cells
from evalharness.factorial.executor import Executor, FactorialRun
from evalharness.factorial.launch_run import Display
from evalharness.factorial.prompts import PromptBook, read_back
from evalharness.server.process import kill_leftovers
from evalharness.types import CellKey

EXIT_INTERRUPTED = 128 + signal.SIGINT


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How the run stands: the exit code and, per line, what is missing and why."""

    exit_code: int
    missing: tuple[str, ...]


async def run_factorial(run: FactorialRun, display: Display, executor: Executor) -> RunOutcome:
    """Run what is still missing; returns when nothing is, or when it cannot go on.

    A server that does not start ends the run (ServerError). One that dies in a cell loses that
    launch only: the other launches still run, and the outcome is EXIT_SERVER.
    """
    stop = asyncio.Event()
    # A server of a session that was killed may still write its log while it ends.
    await asyncio.to_thread(kill_leftovers, str(run.folder.resolve()))
    for key in close_unfinished(run.folder):
        display.note(f"{_text(key)}: an unfinished cell of an earlier session is kept as aborted")
    prompts = PromptBook()
    complete = complete_cells(run.folder)
    for key, path in complete.items():
        prompts.compare(key, (await asyncio.to_thread(read_back, path)).prompts)
    tools = CellTools(run.folder, run.settings, prompts, stop, display.response)
    with _stopping_on_signals(stop, display.note):
        died = await executor.run(run, tools, display, done=set(complete))
    return _outcome(run, died, interrupted=stop.is_set())


def missing_cells(run: FactorialRun) -> list[CellKey]:
    """Return the planned cells that are not complete on disk."""
    done = complete_cells(run.folder)
    return [
        cell.key for planned in run.launches for cell in run.cells(planned) if cell.key not in done
    ]


def missing_lines(run: FactorialRun) -> tuple[str, ...]:
    """Return one line for each planned cell that is not complete on disk."""
    return tuple(f"missing: {_text(key)}" for key in missing_cells(run))


def _outcome(run: FactorialRun, died: Sequence[str], *, interrupted: bool) -> RunOutcome:
    lines = missing_lines(run)
    if not lines:
        return RunOutcome(EXIT_OK, ())
    code = EXIT_SERVER if died and not interrupted else EXIT_INCOMPLETE
    return RunOutcome(code, (*died, *lines))


def _text(key: CellKey) -> str:
    part = f" shard {key.shard.text}" if key.shard.of > 1 else ""
    return f"{key.arm} {key.suite}.{key.mode} C{key.concurrency} replay {key.replicate}{part}"


@contextmanager
def _stopping_on_signals(stop: asyncio.Event, note: Callable[[str], None]) -> Iterator[None]:
    """The first Ctrl-C (or SIGTERM) stops cleanly, the second at once.

    At once is safe: the server's warden ends it when this process is gone.
    """
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            if sys.stdout.isatty():
                os.write(1, b"\x1b[?25h")  # the live display hides the cursor
            os._exit(EXIT_INTERRUPTED)
        stop.set()
        note("stopping: the cell in progress is kept as aborted; Ctrl-C again to leave at once")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def with_endpoint_names(file: ArmsFile, *, trust_env: bool) -> ArmsFile:
    """Return the file with the served name of every endpoint arm asked from its endpoint.

    Requests name the model, so all arms must serve one name. Raises ServerError or HarnessError.
    """
    from evalharness.server.server import endpoint_model

    arms = []
    for arm in file.arms:
        if arm.endpoint and not arm.served_name:
            served = await endpoint_model(arm, trust_env=trust_env)
            arms.append(dataclasses.replace(arm, served_name=served))
        else:
            arms.append(arm)
    names = sorted({arm.served_name for arm in arms})
    if len(names) > 1:
        raise HarnessError(
            f"{file.name}: arms serve different names ({', '.join(names)}), so their requests "
            "would differ; give all of them one served_name"
        )
    return dataclasses.replace(file, arms=tuple(arms))


__all__ = ["FactorialRun", "RunOutcome", "ServerError", "run_factorial", "with_endpoint_names"]
