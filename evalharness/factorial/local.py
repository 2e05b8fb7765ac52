"""The local executor: one launch after the other on this machine, in the plan's order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from evalharness.arms import ArmFacts, ArmsFile, with_digests
from evalharness.factorial.cell_run import CellTools
from evalharness.factorial.executor import (
    FactorialRun,
    how_it_died,
    launch_work,
    next_launch,
    wanted_cells,
)
from evalharness.factorial.launch_run import Display, run_launch
from evalharness.server.node import gpus
from evalharness.types import CellKey


class LocalExecutor:
    """See evalharness.factorial.executor.Executor."""

    def digests(self, file: ArmsFile) -> tuple[ArmsFile, Mapping[str, ArmFacts]]:
        """Digest the arms from this machine's files. Raises ArmsError."""
        return with_digests(file)

    async def run(
        self, run: FactorialRun, tools: CellTools, display: Display, *, done: AbstractSet[CellKey]
    ) -> list[str]:
        """Run the launches that have cells to run; returns those whose server died.

        A server that does not start ends the run (ServerError).
        """
        died: list[str] = []
        started = 0
        baseline = await asyncio.to_thread(gpus)
        for planned in run.launches:
            wanted = wanted_cells(run, planned, done)
            if not wanted:
                continue
            full = run.max_launches is not None and started >= run.max_launches
            if tools.stop.is_set() or full:
                break
            started += 1
            number = next_launch(run.folder)
            work = launch_work(run, planned, wanted, number=number, baseline=baseline)
            result = await run_launch(work, tools, display)
            if result.died:
                died.append(how_it_died(planned, result))
                display.note(died[-1])
        return died
