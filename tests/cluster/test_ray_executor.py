"""The Ray executor on a real cluster of three nodes: same run, lost nodes, lost drivers, refusals.

The servers are the loopback servers of the other tests, started as the arms' processes on each
node. One cluster serves the whole module: the first test kills a node of three, the last adds one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.local_cluster import NAMES, SETTINGS, LocalCluster, is_running
from tests.cluster.wide_run import SHARDS, WideFactorial
from tests.e2e.fake_run import ROOT, wait_until

pytest.importorskip("ray", reason="the [ray] extra is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
ARMS = ("control", "kernel", "cache", "kernel+cache")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    # node-c's Python would find another vLLM, once an arms file asks for that Python.
    with LocalCluster({"node-c": {"FAKE_NODE_VERSION": "9.9"}}) as found:
        yield found


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> WideFactorial:
    work = WideFactorial(tmp_path_factory.mktemp("local"), delay_s=0)
    code, output = work.finish()
    assert code == 0, output
    return work


def ray(cluster: LocalCluster, *more: str) -> tuple[str, ...]:
    return ("--executor", "ray", "--ray-address", cluster.address, *more)


def like(local: WideFactorial, folder: Path, *, delay_s: float) -> WideFactorial:
    """Return the same factorial in another folder: same model, manifest and arms."""
    work = WideFactorial(folder, delay_s=delay_s)
    text = work.arms.read_text()
    work.arms.write_text(
        text.replace(f"path: {folder / 'model'}", f"path: {local.folder / 'model'}")
    )
    return work


def test_a_node_lost_in_the_middle_of_a_cell(
    cluster: LocalCluster, local: WideFactorial, tmp_path: Path
) -> None:
    work = like(local, tmp_path, delay_s=0.12)
    process = work.start(*ray(cluster))
    seen: dict[str, str | None] = {}
    try:
        # In the middle of a cell on node-b, after it has completed others.
        def busy() -> bool:
            for pid in work.living():
                seen.setdefault(str(pid), cluster.node_of(pid))
            return _unfinished(work, "node-b") and _complete(work, "node-b")

        wait_until(busy)
        lost = cluster.kill("node-b")
        output, _ = process.communicate(timeout=400)
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert set(NAMES) <= set(seen.values()), "a server process below each node's raylet"
    assert not [pid for pid in lost if is_running(pid)]
    assert work.living() == []

    # The same plan, and the same answer and verdict of every case, as on one machine.
    assert _comparable(work) == _comparable(local)
    assert work.bodies() == local.bodies()
    assert len(set(work.bodies().values())) >= 16, "one answer for all would prove nothing"
    assert work.verdicts() == local.verdicts()
    assert len(work.verdicts()) >= len(ARMS) * work.cells * 8

    # What the node had begun is kept and listed, and was run whole by a later launch elsewhere.
    records = work.records()
    states = Counter(record["state"] for record in records)
    assert states["aborted"] >= 1
    assert states["complete"] == len(ARMS) * work.cells * SHARDS
    servers = {server["launch"]: server for server in work.servers()}
    for record in records:
        if record["state"] == "aborted":
            assert servers[record["launch"]]["node"]["name"] == "node-b"
            assert "node-b was lost" in record["reason"]
            again = [one for one in records if _place(one) == _place(record) and one != record]
            assert [one["state"] for one in again] == ["complete"]
            assert again[0]["launch"] > record["launch"]
            assert again[0]["rows"] == again[0]["expected_rows"]
    _check_report(work, lost="node-b")


def _check_report(work: WideFactorial, *, lost: str) -> None:
    report = json.loads((work.run / "report/report.json").read_text())
    placement = report["placement"]
    assert {row["node"] for row in placement["nodes"]} == set(NAMES)
    stopped = {row["node"] for row in placement["arms"] if row["stopped_cells"]}
    assert stopped == {lost}
    assert {row["arm"] for row in placement["contrasts"]} == set(ARMS) - {"control"}
    assert any(row["state"] == "aborted" for row in report["stopped"])
    page = (work.run / "report/index.html").read_text()
    assert '<section id="placement">' in page
    assert all(f"<td>{name}</td>" in page for name in NAMES)


def _place(record: dict[str, object]) -> tuple[object, ...]:
    names = ("arm", "suite", "mode", "concurrency", "replicate", "shard")
    return tuple(str(record.get(name)) for name in names)


def _nodes_of_launches(work: WideFactorial) -> dict[int, str]:
    return {server["launch"]: server["node"]["name"] for server in work.servers()}


def _unfinished(work: WideFactorial, node: str) -> bool:
    """Is a cell in progress there, with responses that have landed in RUN and others to come?"""
    nodes = _nodes_of_launches(work)
    for record in work.records():
        if nodes.get(record["launch"]) == node and record["responses_sha256"] is None:
            folder = work.run / "responses" / record["arm"] / f"{record['launch']:03d}"
            rows = sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl"))
            done = sum(one["rows"] for one in work.records() if one["launch"] == record["launch"])
            if 0 < rows - done < record["expected_rows"]:
                return True
    return False


def _ended(record: Mapping[str, Any]) -> str | None:
    """Return a cell's state; None while its responses still come in."""
    return None if record["responses_sha256"] is None else str(record["state"])


def _complete(work: WideFactorial, node: str) -> bool:
    nodes = _nodes_of_launches(work)
    return any(
        nodes.get(record["launch"]) == node and record["state"] == "complete"
        for record in work.records()
    )


def _comparable(work: WideFactorial) -> dict[str, object]:
    """The plan without this test's folders: the delay and the log of what was asked."""
    plan = work.plan()
    text = json.dumps(plan).replace(str(work.folder), "FOLDER")
    plan = json.loads(text)
    plan.pop("arms_file")
    for arm in plan["arms"]:
        del arm["digest"], arm["model_path"]
        arm["env"].pop("FAKE_DELAY_S")
    return plan


def test_the_same_command_has_the_same_plan_and_continues_after_its_driver_was_killed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    work = WideFactorial(tmp_path, delay_s=0.12)
    process = work.start(*ray(cluster), "--max-launches", "3")
    # One cell is complete and another in progress: what was begun must be kept as aborted.
    wait_until(lambda: {None, "complete"} <= {_ended(record) for record in work.records()})
    process.kill()
    process.wait()
    before = {
        path: path.read_bytes()
        for record in work.run.glob("responses/*/*/*.cell.json")
        if json.loads(record.read_text())["state"] == "complete"
        for path in [record.with_name(record.name.replace(".cell.json", ".jsonl"))]
    }
    wait_until(lambda: not work.living(), timeout_s=240)
    plan = (work.run / "plan.json").read_bytes()
    code, output = work.finish(*ray(cluster), "--max-launches", "3")
    assert code == 12, output
    assert (work.run / "plan.json").read_bytes() == plan
    assert all(path.read_bytes() == data for path, data in before.items())
    assert "is kept as aborted" in output
    # Another executor may go on where this one stopped: the plan does not know which.
    code, output = work.finish("--max-launches", "1")
    assert code == 12, output
    assert (work.run / "plan.json").read_bytes() == plan
    hosts = [server["node"].get("executor") for server in work.servers()]
    assert Counter(hosts)[None] == 1


def test_ctrl_c_stops_every_node_cleanly(cluster: LocalCluster, tmp_path: Path) -> None:
    work = WideFactorial(tmp_path, delay_s=0.3)
    process = work.start(*ray(cluster))
    try:
        wait_until(lambda: len({server["node"]["name"] for server in work.servers()}) >= 2)
        wait_until(lambda: len(work.asked()) >= 4)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=400)
    finally:
        process.kill()
    assert process.returncode == 12, output
    wait_until(lambda: not work.living(), timeout_s=240)
    stopped = [one for one in work.records() if one["state"] == "aborted"]
    assert stopped
    assert {one["reason"] for one in stopped} == {"stopped by the user"}
    assert all(one["responses_sha256"] for one in stopped)


def test_what_cannot_run_is_refused_before_anything_starts(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    work = WideFactorial(tmp_path)
    code, output = work.finish(*ray(cluster, "--resources", "GPU=4"))
    assert code == 2
    assert "no node can hold a launch that asks for GPU=4" in output
    assert "node node-a has GPU=0 of 4" in output
    _other_version_on_one_node(work)
    code, output = work.finish(*ray(cluster))
    assert code == 2, output
    assert "node node-c: versions vllm is 9.9" in output
    code, output = work.finish("--executor", "ray", "--ray-address", "127.0.0.1:1")
    assert code == 2
    assert "--ray-address 127.0.0.1:1" in output
    assert not (work.run / "plan.json").exists()
    assert work.asked() == []
    assert work.servers() == []


def _other_version_on_one_node(work: WideFactorial) -> None:
    """Let the arms' Python answer with the node's own version of vLLM."""
    python = work.folder / "fake-python"
    found = '{"versions": {"vllm": "%s"}, "plugins": {}, "kernels": {}, "modules": {}}'
    answer = f"printf '{found}' \"${{FAKE_NODE_VERSION:-1.0}}\""
    script = python.read_text().replace(
        "#!/bin/sh\n", f'#!/bin/sh\nif [ "$1" = "-c" ]; then {answer}; exit 0; fi\n'
    )
    python.write_text(script)


def test_many_runs_are_rescored_and_judged_with_the_same_bytes(
    cluster: LocalCluster, local: WideFactorial
) -> None:
    def files(pattern: str) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in local.run.glob(pattern)}

    scores, reports = files("scores/**/*.jsonl"), files("report/*")
    for path in scores:
        path.unlink()
    code, output = _evalharness("rescore", str(local.run), *ray(cluster))
    assert code == 0, output
    assert files("scores/**/*.jsonl") == scores
    for path in reports:
        path.unlink()
    table = local.folder / "table"
    code, output = _evalharness(
        "noninferiority", "--each", str(local.run), str(local.folder), "--out", str(table),
        *ray(cluster),
    )  # fmt: skip
    assert code == 2, output
    assert f"{local.folder}: {local.folder}/plan.json: No such file" in output
    assert files("report/*") == reports
    runs = json.loads((table / "runs.json").read_text())
    assert [run.get("verdict") for run in runs["runs"]] == [None, runs["runs"][1]["verdict"]]
    assert sum(row["cases"] for row in runs["totals"]) == (len(ARMS) - 1) * local.cells * 8


def test_launches_that_ask_for_gpus_share_a_node_and_not_a_card(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.add("node-g", cpus=2, gpus=2)
    work = WideFactorial(tmp_path, delay_s=0)
    code, output = work.finish(*ray(cluster))
    assert code == 2
    assert "node node-g has 2 GPUs, and Ray hides them from a launch that asks for none" in output
    code, output = work.finish(*ray(cluster, "--resources", "GPU=1"), "--max-launches", "2")
    assert code == 12, output
    assert "left out: node node-a has GPU=0 of 1" in output
    servers = work.servers()
    assert {server["node"]["name"] for server in servers} == {"node-g"}
    assert sorted(server["node"]["gpu_ids"] for server in servers) == [["0"], ["1"]]
    for server in servers:
        assert [server["env"]["CUDA_VISIBLE_DEVICES"]] == server["node"]["gpu_ids"]
    assert {record["state"] for record in work.records()} == {"complete"}


def _evalharness(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "evalharness", *arguments],
        cwd=ROOT,
        env={**os.environ, **SETTINGS},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    return done.returncode, done.stdout + done.stderr
