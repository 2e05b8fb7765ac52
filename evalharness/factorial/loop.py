"""The run's loop: launches in the plan's order, each with the cells that are still wanted."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalharness.arms import ArmFacts, ArmsFile, PlannedLaunch
from evalharness.errors import EXIT_INCOMPLETE, EXIT_OK, EXIT_SERVER, HarnessError, ServerError
from evalharness.factorial.cell_run import CellSettings, CellTools
from evalharness.factorial.cells import (
    PlannedCell,
    close_unfinished,
    complete_cells,
    planned_cells,
)
from evalharness.factorial.launch_run import (
    Display,
    LaunchResult,
    LaunchWork,
    launch_folder,
    run_launch,
)
from evalharness.factorial.prompts import PromptBook, read_back
from evalharness.manifest import Manifest
from evalharness.server import LaunchSpec
from evalharness.server.node import gpus
from evalharness.types import Case, CellKey

EXIT_INTERRUPTED = 128 + signal.SIGINT


@dataclass(frozen=True, slots=True)
class FactorialRun:
    """All that a run needs, checked and frozen."""

    folder: Path
    file: ArmsFile
    facts: Mapping[str, ArmFacts]
    manifest: Manifest
    cases: Mapping[str, Sequence[Case]]
    launches: tuple[PlannedLaunch, ...]
    concurrency: tuple[int, ...]
    seed: int
    settings: CellSettings
    max_launches: int | None


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How the run stands: the exit code and, per line, what is missing and why."""

    exit_code: int
    missing: tuple[str, ...]


async def run_factorial(run: FactorialRun, display: Display) -> RunOutcome:
    """Run what is still missing; returns when nothing is, or when it cannot go on.

    A server that does not start ends the run (ServerError). One that dies in a cell loses that
    launch only: the other launches still run, and the outcome is EXIT_SERVER.
    """
    stop = asyncio.Event()
    for key in close_unfinished(run.folder):
        display.note(f"{_text(key)}: an unfinished cell of an earlier session is kept as aborted")
    prompts = PromptBook()
    complete = complete_cells(run.folder)
    for key, path in complete.items():
        prompts.compare(key, (await asyncio.to_thread(read_back, path)).prompts)
    tools = CellTools(run.folder, run.settings, prompts, stop, display.response)
    with _stopping_on_signals(stop, display.note):
        died = await _launches(run, tools, display, set(complete))
    return _outcome(run, died, interrupted=stop.is_set())


async def _launches(
    run: FactorialRun, tools: CellTools, display: Display, done: set[CellKey]
) -> list[str]:
    """Run the launches that have cells to run; returns those whose server died."""
    died: list[str] = []
    started = 0
    baseline = await asyncio.to_thread(gpus)
    for planned in run.launches:
        wanted = [
            cell
            for cell in planned_cells(run.manifest, planned, run.concurrency)
            if cell.key not in done
        ]
        if not wanted:
            continue
        if tools.stop.is_set() or (run.max_launches is not None and started >= run.max_launches):
            break
        started += 1
        result = await run_launch(_work(run, planned, wanted, baseline), tools, display)
        if result.died:
            died.append(_how_it_died(planned, result))
            display.note(died[-1])
    return died


def _how_it_died(planned: PlannedLaunch, result: LaunchResult) -> str:
    reason = result.records[-1]["reason"] if result.records else "its server ended"
    return f"arm {planned.arm}: {reason}"


def _work(
    run: FactorialRun,
    planned: PlannedLaunch,
    wanted: Sequence[PlannedCell],
    baseline: Sequence[Mapping[str, Any]],
) -> LaunchWork:
    arm = run.file.arm(planned.arm)
    number = next_launch(run.folder)
    spec = LaunchSpec(
        arm=arm,
        name=planned.arm,
        number=number,
        folder=launch_folder(run.folder, planned.arm, number),
        factors=run.file.settings,
        model_files=run.facts[arm.name].model_files,
        ready_timeout_s=run.file.ready_timeout_s,
        run_mark=str(run.folder.resolve()),
        trust_env=run.settings.trust_env,
        gpu_baseline=baseline,
    )
    return LaunchWork(spec, tuple(wanted), run.manifest, run.cases, run.seed)


def next_launch(run: Path) -> int:
    """Return the next launch number of the run; an interrupted launch keeps its own."""
    numbers = [int(path.name) for path in run.glob("arms/*/*") if path.name.isdigit()]
    return max(numbers, default=0) + 1


def missing_cells(run: FactorialRun) -> list[CellKey]:
    """Return the planned cells that are not complete on disk."""
    done = complete_cells(run.folder)
    return [
        cell.key
        for planned in run.launches
        for cell in planned_cells(run.manifest, planned, run.concurrency)
        if cell.key not in done
    ]


def _outcome(run: FactorialRun, died: Sequence[str], *, interrupted: bool) -> RunOutcome:
    missing = missing_cells(run)
    lines = [f"missing: {_text(key)}" for key in missing]
    if not missing:
        return RunOutcome(EXIT_OK, ())
    code = EXIT_SERVER if died and not interrupted else EXIT_INCOMPLETE
    return RunOutcome(code, (*died, *lines))


def _text(key: CellKey) -> str:
    return f"{key.arm} {key.suite}.{key.mode} C{key.concurrency} replay {key.replicate}"


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
