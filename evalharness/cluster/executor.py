"""The Ray executor: launches on the nodes that the seed gives them, results into one RUN."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evalharness.arms import ArmFacts, ArmsFile, PlannedLaunch
from evalharness.cluster.board import Board
from evalharness.cluster.checks import (
    refuse_endpoints,
    refuse_other_code,
    usable_nodes,
    whole_demand,
)
from evalharness.cluster.examining import Examined, agreed, code_identity
from evalharness.cluster.landing import Landing
from evalharness.cluster.placing import place
from evalharness.cluster.values import (
    Batch,
    LaunchJob,
    LaunchLostError,
    LaunchStoppedError,
    Node,
    Piece,
    Said,
    Shared,
)
from evalharness.errors import (
    EXIT_INCOMPLETE,
    EXIT_SERVER,
    HarnessError,
    IncompleteError,
    ServerError,
)
from evalharness.factorial.cell_run import CellTools
from evalharness.factorial.cells import close_unfinished, key_of
from evalharness.factorial.executor import FactorialRun, launch_work, next_launch, wanted_cells
from evalharness.factorial.launch_run import Display
from evalharness.progress import record_line
from evalharness.types import CellKey, sha256_hex

if TYPE_CHECKING:
    from evalharness.cluster.session import Session

MAX_TRIES = 3
# An error of a launch travels as text and exit code, and is raised here as its kind again.
ERRORS = {EXIT_SERVER: ServerError, EXIT_INCOMPLETE: IncompleteError}


class RayExecutor:
    """See evalharness.factorial.executor.Executor. `close` it when the run is over."""

    def __init__(self, session: Session, resources: Mapping[str, float]) -> None:
        self._session = session
        self._resources = dict(resources)
        self._slots: dict[str, int] = {}
        self._nodes: dict[str, Node] = {}
        self._examined: dict[str, Examined] = {}
        self._notes: list[str] = []

    def close(self) -> None:
        """Leave the cluster."""
        self._session.close()

    def digests(self, file: ArmsFile) -> tuple[ArmsFile, Mapping[str, ArmFacts]]:
        """Return the arms as all nodes would serve them alike.

        Raises HarnessError naming the node that lacks resources, this package, or a model, or
        has others than the rest.
        """
        refuse_endpoints(file)
        nodes = self._session.nodes()
        self._slots, self._notes = usable_nodes(nodes, self._resources, file)
        self._nodes = {node.name: node for node in nodes if node.name in self._slots}
        chosen = list(self._nodes.values())
        refuse_other_code(asyncio.run(self._session.identities(chosen)), code_identity())
        self._examined = asyncio.run(self._session.examined(chosen, file))
        return agreed(self._examined)

    async def run(
        self, run: FactorialRun, tools: CellTools, display: Display, *, done: AbstractSet[CellKey]
    ) -> list[str]:
        """Run the launches that have cells to run; returns why some were lost for good."""
        wanted = [launch for launch in run.launches if wanted_cells(run, launch, done)]
        placed = place(run.launches, self._slots, seed=run.seed)
        chosen = {launch: placed[launch] for launch in wanted[: run.max_launches]}
        for note in self._notes:
            display.note(note)
        self._session.share(Shared(run.manifest, run.cases))
        campaign = _Campaign(
            run=run,
            tools=tools,
            display=display,
            session=self._session,
            nodes=self._nodes,
            examined=self._examined,
            demand=whole_demand(self._resources),
            board=Board(chosen, list(self._nodes)),
            complete=set(done),
            number=next_launch(run.folder) - 1,
            total=len(chosen),
        )
        slots = [
            asyncio.ensure_future(campaign.slot(name))
            for name, count in self._slots.items()
            for _ in range(count)
        ]
        watch = asyncio.ensure_future(campaign.close_on_stop())
        try:
            await asyncio.gather(*slots)
        finally:
            watch.cancel()
        if campaign.failure is not None:
            raise campaign.failure
        return campaign.died


@dataclass
class _Campaign:
    """The launches of one command on the cluster."""

    run: FactorialRun
    tools: CellTools
    display: Display
    session: Session
    nodes: Mapping[str, Node]
    examined: Mapping[str, Examined]
    demand: Mapping[str, float]
    board: Board
    complete: set[CellKey]
    number: int
    total: int
    started: int = 0
    died: list[str] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    tries: dict[PlannedLaunch, int] = field(default_factory=dict)
    failure: HarnessError | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(4))

    async def slot(self, name: str) -> None:
        """Take launches for one place on a node until there are none."""
        while (planned := await self.board.take(name)) is not None:
            try:
                await self._launch(planned, self.nodes[name])
            except HarnessError as error:
                # Others end what they have begun: an hour of their answers is worth keeping.
                self.failure = self.failure or error
                await self.board.close()
            finally:
                await self.board.done()

    async def close_on_stop(self) -> None:
        """Start nothing more once the user stops the run."""
        await self.tools.stop.wait()
        await self.board.close()

    async def _launch(self, planned: PlannedLaunch, node: Node) -> None:
        job = self._job(planned, node)
        what = f"[{job.spec.number:03d} {node.name}] arm {planned.arm}"
        self.started += 1
        again = self.tries.setdefault(planned, 0)
        self.tries[planned] += 1
        of = "again" if again else f"{self.started - len(self.lost)}/{self.total}"
        self.display.note(f"{what}: starting the server ({of})")
        landing = Landing(
            self.run.folder,
            arm=planned.arm,
            number=job.spec.number,
            prompts=self.tools.prompts,
        )
        why = "the launch ended before the cell was complete"
        try:
            await self._follow(job, node, landing, what)
        except LaunchLostError as error:
            why = str(error)
            await self._recover(planned, node, number=job.spec.number, why=why)
        except LaunchStoppedError as error:
            why = str(error)
        finally:
            for _ in close_unfinished(self.run.folder, launch=job.spec.folder.name, reason=why):
                self.display.note(f"{what}: its unfinished cell is kept as aborted: {why}")

    async def _follow(self, job: LaunchJob, node: Node, landing: Landing, what: str) -> None:
        """Keep what the launch sends until its end. See Session.launch for the errors."""
        ended = False
        carried = self.session.launch(job, node, demand=self.demand, stop=self.tools.stop)
        async with aclosing(carried) as batches:
            async for batch in batches:
                await self._receive(batch, landing, what)
                ended = ended or any(isinstance(one, Said) and one.kind == "end" for one in batch)
        if not ended:
            # A cancelled task's last batches may never arrive, and its stream ends without a word.
            if self.tools.stop.is_set():
                raise LaunchStoppedError("stopped by the user")
            raise LaunchLostError(f"node {node.name}: the launch's results ended too early")

    def _job(self, planned: PlannedLaunch, node: Node) -> LaunchJob:
        self.number += 1
        wanted = wanted_cells(self.run, planned, self.complete)
        cards = self.examined[node.name].cards
        work = launch_work(self.run, planned, wanted, number=self.number, baseline=cards)
        folder = work.spec.folder.relative_to(self.run.folder)
        return LaunchJob(
            spec=dataclasses.replace(work.spec, folder=folder),
            cells=work.cells,
            seed=work.seed,
            settings=self.run.settings,
            working_directory=os.getcwd(),  # noqa: PTH109 - a text for another machine
            folder=sha256_hex(str(self.run.folder.resolve()))[:16],
            session=self.token,
            lost=frozenset(self.lost),
        )

    async def _receive(self, batch: Batch, landing: Landing, what: str) -> None:
        pieces = [item for item in batch if isinstance(item, Piece)]
        for record in await asyncio.to_thread(landing.land, pieces):
            self._note_cell(record, what)
        for said in (item for item in batch if isinstance(item, Said)):
            self._hear(said, what)

    def _note_cell(self, record: Mapping[str, Any], what: str) -> None:
        if record["state"] == "complete":
            self.complete.add(key_of(record))
        if record["responses_sha256"] is not None or record["state"] == "incomplete":
            self.display.note(f"{what}: {record_line(record)}")

    def _hear(self, said: Said, what: str) -> None:
        if said.kind == "error":
            raise ERRORS.get(said.error_exit, HarnessError)(f"{what}: {said.text}")
        if said.kind == "ready" and said.seconds is not None:
            self.display.note(f"{what}: ready after {said.seconds:.1f} s")
        elif said.kind == "note":
            self.display.note(f"{what}: {said.text}")
        elif said.kind == "end" and said.died:
            self.died.append(f"{what}: its server ended or stopped answering")
            self.display.note(self.died[-1])

    async def _recover(self, planned: PlannedLaunch, node: Node, *, number: int, why: str) -> None:
        """Have a lost launch run again, elsewhere unless its node is well."""
        self.lost.add(number)
        self.display.note(f"[{number:03d} {node.name}] arm {planned.arm}: {why}")
        if self.tools.stop.is_set():
            return
        if self.tries[planned] >= MAX_TRIES:
            self.died.append(f"arm {planned.arm}: lost {MAX_TRIES} times, the last time: {why}")
            return
        gone = not await self.session.alive(node)
        if not await self.board.again(node.name, planned, lost=gone):
            raise IncompleteError(
                "no node is left to run on; bring nodes back and run the same command again"
            )
