"""Where launches run: the one interface between the run's loop and what carries it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from evalharness.arms import ArmFacts, ArmsFile, PlannedLaunch
from evalharness.factorial.cell_run import CellSettings, CellTools
from evalharness.factorial.cells import PlannedCell, planned_cells
from evalharness.factorial.launch_run import Display, LaunchResult, LaunchWork, launch_folder
from evalharness.manifest import Manifest
from evalharness.server import LaunchSpec
from evalharness.types import Case, CellKey


@dataclass(frozen=True, slots=True)
class FactorialRun:
    """All that a run needs, checked and frozen. `shards` is what was asked for (1: none)."""

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
    shards: int = 1

    def cells(self, planned: PlannedLaunch) -> list[PlannedCell]:
        """Return a launch's cells in the order in which they run."""
        return planned_cells(self.manifest, planned, self.concurrency, shards=self.shards)


class Executor(Protocol):
    """Carries out the launches of a run, here or elsewhere; the plan does not know which."""

    def digests(self, file: ArmsFile) -> tuple[ArmsFile, Mapping[str, ArmFacts]]:
        """Return the file with every arm's digest, as where it will be served.

        Called before anything is written: raises HarnessError where a launch could not run.
        """

    async def run(
        self, run: FactorialRun, tools: CellTools, display: Display, *, done: AbstractSet[CellKey]
    ) -> list[str]:
        """Run the launches that have cells outside `done`; return why some were lost.

        Raises ServerError where a server does not become ready, StoreError or IncompleteError
        (disk). Every cell lies in the run's folder when this returns, also when it raises.
        """


def wanted_cells(
    run: FactorialRun, planned: PlannedLaunch, done: AbstractSet[CellKey]
) -> list[PlannedCell]:
    """Return the cells of a launch that are still to be run."""
    return [cell for cell in run.cells(planned) if cell.key not in done]


def launch_work(
    run: FactorialRun,
    planned: PlannedLaunch,
    wanted: Sequence[PlannedCell],
    *,
    number: int,
    baseline: Sequence[Mapping[str, Any]],
) -> LaunchWork:
    """Return one launch's work as values. `baseline`: the GPUs before the first launch."""
    arm = run.file.arm(planned.arm)
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


def how_it_died(planned: PlannedLaunch, result: LaunchResult) -> str:
    """Return one line on a launch whose server ended before its cells did."""
    reason = result.records[-1]["reason"] if result.records else "its server ended"
    return f"arm {planned.arm}: {reason}"
