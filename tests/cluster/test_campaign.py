"""The executor's own decisions, against a session that plays what a cluster may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evalharness.arms import ArmsFile, launch_order, parse_arms
from evalharness.cluster.examining import Examined, code_identity, examine
from evalharness.cluster.executor import MAX_TRIES, RayExecutor
from evalharness.cluster.values import Batch, LaunchJob, LaunchLostError, Node, Said, Shared
from evalharness.errors import EXIT_SERVER, HarnessError, IncompleteError, ServerError
from evalharness.factorial.cell_run import CellSettings, CellTools
from evalharness.factorial.executor import FactorialRun
from evalharness.factorial.prompts import PromptBook
from evalharness.manifest import load_cases, load_manifest

ROOT = Path(__file__).parents[2]
ARMS = """\
model: {{path: {model}, served_name: demo}}
factors: {{hc: {{off: {{args: [--x]}}, on: {{args: [--y]}}}}}}
control: {{hc: off}}
"""
End = Said("end")


class Played:
    """A session of nodes n1 and n2; `play` says what comes of a job on a node."""

    def __init__(self, play: Callable[[LaunchJob, str], Said | Exception | None]) -> None:
        self.play = play
        self.jobs: list[tuple[LaunchJob, str]] = []
        self.dead: set[str] = set()

    def nodes(self) -> list[Node]:
        return [Node(name, name, "10.0.0.1", "host", {"CPU": 4.0}) for name in ("n1", "n2")]

    async def identities(self, nodes: Sequence[Node]) -> dict[str, dict[str, str]]:
        return {node.name: code_identity() for node in nodes}

    async def examined(self, nodes: Sequence[Node], file: ArmsFile) -> dict[str, Examined]:
        return {node.name: examine(file, ".") for node in nodes}

    async def alive(self, node: Node) -> bool:
        return node.name not in self.dead

    def share(self, shared: Shared) -> None:
        assert shared.cases

    async def launch(
        self, job: LaunchJob, node: Node, *, demand: Mapping[str, float], stop: asyncio.Event
    ) -> AsyncIterator[Batch]:
        assert demand == {"CPU": 1}
        assert node.name not in self.dead, "nothing is sent to a node that is gone"
        self.jobs.append((job, node.name))
        await asyncio.sleep(0.001)
        outcome = self.play(job, node.name)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is not None:
            yield (outcome,)


class Notes:
    """A display that keeps its notes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


def carried(tmp_path: Path, session: Any, *, shards: int = 2) -> tuple[list[str], list[str]]:
    """Run a factorial on the played cluster; returns what was lost for good, and the notes."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    executor = RayExecutor(session, {})
    file, facts = executor.digests(parse_arms(ARMS.format(model=model).encode(), "a.yaml"))
    manifest = load_manifest(ROOT / "manifests/smoke.json")
    names = [arm.name for arm in file.arms]
    order = launch_order(names, aa=True, order="randomized", seed=1, replays=1, shards=shards)
    settings = CellSettings(request_timeout_s=1, max_body_bytes=1, trust_env=False)
    (tmp_path / "run").mkdir()
    run = FactorialRun(
        folder=tmp_path / "run", file=file, facts=facts, manifest=manifest,
        cases=load_cases(manifest), launches=order, concurrency=(1,), seed=1, settings=settings,
        max_launches=None, shards=shards,
    )  # fmt: skip
    notes: Any = Notes()

    async def go() -> list[str]:
        tools = CellTools(run.folder, settings, PromptBook(), asyncio.Event(), lambda _: None)
        return await executor.run(run, tools, notes, done=set())

    return asyncio.run(asyncio.wait_for(go(), 30)), notes.lines


def test_every_launch_runs_once_with_a_number_of_its_own(tmp_path: Path) -> None:
    session = Played(lambda job, node: End)
    assert carried(tmp_path, session)[0] == []
    assert sorted(job.spec.number for job, _ in session.jobs) == [1, 2, 3, 4, 5, 6]
    by_node = {node: {job.cells[0].key.shard for job, at in session.jobs if at == node}
               for node in ("n1", "n2")}  # fmt: skip
    assert all(len(shards) == 1 for shards in by_node.values())
    assert len({job.session for job, _ in session.jobs}) == 1


def test_a_lost_nodes_launches_run_elsewhere_and_the_lost_one_is_told(tmp_path: Path) -> None:
    def play(job: LaunchJob, node: str) -> Said | Exception:
        if node == "n1":
            session.dead.add("n1")
            return LaunchLostError("node n1 was lost")
        return End

    session = Played(play)
    died, notes = carried(tmp_path, session)
    assert died == []
    lost = next(job for job, node in session.jobs if node == "n1")
    again = [job for job, node in session.jobs if node == "n2"]
    assert len(again) == 6
    repeated = next(job for job in again if job.cells == lost.cells)
    assert repeated.spec.number > lost.spec.number
    assert lost.spec.number in repeated.lost
    assert any("node n1 was lost" in line for line in notes)


@pytest.mark.parametrize("silent", [True, False])
def test_a_launch_that_is_lost_again_and_again_is_given_up(tmp_path: Path, silent: bool) -> None:
    def play(job: LaunchJob, node: str) -> Said | Exception | None:
        if job.spec.name == "hc":
            return None if silent else LaunchLostError("worker killed")
        return End

    session = Played(play)
    died, _ = carried(tmp_path, session)
    assert len(died) == 2
    assert all(f"arm hc: lost {MAX_TRIES} times" in line for line in died)
    assert sum(job.spec.name == "hc" for job, _ in session.jobs) == 2 * MAX_TRIES
    assert sum(job.spec.name != "hc" for job, _ in session.jobs) == 4


def test_no_node_left_ends_the_run_and_says_how_to_go_on(tmp_path: Path) -> None:
    def play(job: LaunchJob, node: str) -> Exception:
        session.dead.add(node)
        return LaunchLostError("gone")

    session = Played(play)
    with pytest.raises(IncompleteError, match="no node is left to run on"):
        carried(tmp_path, session)
    assert len(session.jobs) == 2


def test_a_server_that_does_not_start_ends_the_run_as_locally(tmp_path: Path) -> None:
    failed = Said("error", "not ready", error_exit=EXIT_SERVER)
    session = Played(lambda job, node: failed if node == "n1" else End)
    with pytest.raises(ServerError, match=r"n1.*not ready"):
        carried(tmp_path, session)
    assert sum(node == "n1" for _, node in session.jobs) == 1, "nothing more was started there"


def test_a_dead_server_is_remembered_and_the_rest_runs(tmp_path: Path) -> None:
    session = Played(lambda job, node: Said("end", died=job.spec.name == "aa"))
    died, _ = carried(tmp_path, session)
    assert len(died) == 2
    assert all("arm aa: its server ended" in line for line in died)
    assert len(session.jobs) == 6


def test_another_installation_on_a_node_is_refused_before_anything(tmp_path: Path) -> None:
    class Other(Played):
        async def identities(self, nodes: Sequence[Node]) -> dict[str, dict[str, str]]:
            return {"n1": code_identity(), "n2": {"version": "0.0", "sources": ""}}

    session = Other(lambda job, node: End)
    with pytest.raises(HarnessError, match=r"node n2: evalharness 0\.0"):
        carried(tmp_path, session)
    assert session.jobs == []
