"""The parts of the cluster executor without a cluster: checks, following, landing, carrying."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from evalharness.arms import ArmFacts, parse_arms
from evalharness.arms.parallel import processes_of
from evalharness.cluster.checks import (
    refuse_endpoints,
    refuse_other_code,
    usable_nodes,
)
from evalharness.cluster.examining import Examined, agreed, examine
from evalharness.cluster.following import Follower
from evalharness.cluster.landing import Landing
from evalharness.cluster.values import Node, Piece
from evalharness.errors import HarnessError, StoreError
from evalharness.factorial.cells import cell_record, close_unfinished
from evalharness.factorial.prompts import PromptBook
from evalharness.store import encode_line
from evalharness.types import CellKey, Response, Shard

ARMS = """\
model: {{path: {model}, served_name: demo}}
server: {{args: [{args}]}}
factors: {{hc: {{off: {{args: [--x]}}, on: {{args: [--y]}}}}}}
control: {{hc: off}}
"""


def arms(model: Path, args: str = "") -> Any:
    return parse_arms(ARMS.format(model=model, args=args).encode(), "a.yaml")


def node(name: str, **resources: float) -> Node:
    return Node(id=name * 8, name=name, ip="10.0.0.1", host=name, resources=resources)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("", 1),
        ("--tensor-parallel-size, '4'", 4),
        ("--tensor-parallel-size=2, -pp, '2', -dp=2", 8),
        ("-tp, '2', -tp, '4'", 4),
        ("--tensor_parallel_size, '2', --pipeline_parallel_size=2", 4),
        ("-tp, '²', -pp, ''", 1),
    ],
)
def test_processes_of_an_arm(args: str, expected: int, tmp_path: Path) -> None:
    assert processes_of(arms(tmp_path, args).arms[0].argv) == expected


def test_nodes_that_cannot_hold_a_launch_are_left_out_or_refused_by_name(tmp_path: Path) -> None:
    file = arms(tmp_path)
    nodes = [node("a", CPU=8, GPU=8), node("b", CPU=8), node("c", CPU=8, GPU=3)]
    slots, notes = usable_nodes(nodes, {"GPU": 4}, file)
    assert slots == {"a": 2}
    assert notes == ["left out: node b has GPU=0 of 4", "left out: node c has GPU=3 of 4"]
    with pytest.raises(
        HarnessError, match=r"GPU=16, CPU=1: node a has GPU=8 of 16; node b has GPU=0"
    ):
        usable_nodes(nodes, {"GPU": 16}, file)
    with pytest.raises(HarnessError, match="node a has 8 GPUs, and Ray hides them"):
        usable_nodes(nodes, {}, file)
    assert usable_nodes([node("b", CPU=8)], {}, file) == ({"b": 1}, [])
    with pytest.raises(HarnessError, match="arm control is parallel over 8 GPUs"):
        usable_nodes(nodes, {"GPU": 4}, arms(tmp_path, "-tp=8"))


def test_endpoints_stay_at_home() -> None:
    text = "endpoint: {base_url: 'http://h/', served_name: m}\nfactors: {a: {x: {}, y: {endpoint: "
    text += "{base_url: 'http://i/', served_name: m}}}}\ncontrol: {a: x}\n"
    with pytest.raises(HarnessError, match="are endpoints: one server"):
        refuse_endpoints(parse_arms(text.encode(), "a.yaml"))


def test_other_code_is_named_with_its_node() -> None:
    own = {"version": "1", "sources": "aa"}
    refuse_other_code({"a": own, "b": dict(own)}, own)
    found = {"a": own, "b": {**own, "version": "2"}, "c": {**own, "sources": "bb"}}
    with pytest.raises(HarnessError) as caught:
        refuse_other_code({**found, "d": {"error": "No module named 'evalharness'"}}, own)
    said = str(caught.value)
    assert "node b: evalharness 2, here 1" in said
    assert "node c: evalharness 1 with other sources" in said
    assert "node d: evalharness is not there (No module named 'evalharness')" in said
    assert "node a" not in said


def test_a_node_without_the_model_and_one_with_another_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # undoes the chdir of `examine`, which is meant for a worker
    for name, text in (("good", "{}"), ("other", "{ }")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    good = examine(arms(tmp_path / "good"), str(tmp_path))
    assert good.error is None
    assert agreed({"a": good, "b": good})[1].keys() == {"control", "hc"}
    missing = examine(arms(tmp_path / "nowhere"), str(tmp_path))
    with pytest.raises(HarnessError, match=r"^node b: arm 'control': model .* not found"):
        agreed({"a": good, "b": missing})
    with pytest.raises(HarnessError, match="on every node: arm 'control'"):
        agreed({"a": missing, "b": missing})
    other = examine(arms(tmp_path / "other"), str(tmp_path))
    with pytest.raises(HarnessError) as caught:
        agreed({"a": good, "b": good, "c": other})
    assert "node c: model_files config.json is " in str(caught.value)
    assert "node b" not in str(caught.value)
    facts = ArmFacts({}, {"vllm": "0.31"}, {}, {}, {})
    older = Examined(None, good.file, {**good.facts, "hc": facts}, [])
    with pytest.raises(HarnessError, match=r"versions vllm is 0\.31, on node a absent \(arm hc\)"):
        agreed({"a": good, "b": older})


KEY = CellKey("control", "gsm8k", "chat", 1, 0, Shard(2, 3))
PLACE = "responses/control/004"


def line(case_id: str, tokens: int = 7) -> bytes:
    response = Response(
        case_id=case_id, replicate=0, request_digest="d", endpoint="/v1/x", request_body="{}",
        status="ok", http_code=200, body="{}", body_encoding="utf-8", error=None, sent_ns=1,
        first_byte_ns=2, done_ns=3, in_flight=1, usage=json.dumps({"prompt_tokens": tokens}),
    )  # fmt: skip
    return encode_line(response)


def record(data: bytes, state: str = "complete") -> bytes:
    found = cell_record(KEY, 4, state=state)
    found["responses_sha256"] = hashlib.sha256(data).hexdigest() if state == "complete" else None
    return json.dumps(found).encode()


def pieces_of(data: bytes) -> list[Piece]:
    name = f"{PLACE}/{KEY.filename}"
    half = len(data) // 2
    return [
        Piece(f"{name}.cell.json", record(b"", "aborted")),
        Piece(f"{name}.jsonl", data[:half], 0),
        Piece(f"{name}.jsonl", data[half:], half),
        Piece(f"{name}.cell.json", record(data)),
    ]


def test_a_cell_lands_whole_and_complete(tmp_path: Path) -> None:
    data = line("a") + line("b")
    landing = Landing(tmp_path, arm="control", number=4, prompts=PromptBook())
    states = [found["state"] for found in landing.land(pieces_of(data))]
    assert states == ["aborted", "complete"]
    stored = tmp_path / PLACE / f"{KEY.filename}.jsonl"
    assert stored.name == "gsm8k.chat-c1-r0-s2of3.jsonl"
    assert stored.read_bytes() == data
    assert list(close_unfinished(tmp_path)) == []


def test_what_did_not_land_whole_is_never_complete(tmp_path: Path) -> None:
    data = line("a") + line("b")
    first, begun, _, last = pieces_of(data)
    landing = Landing(tmp_path, arm="control", number=4, prompts=PromptBook())
    records = landing.land([first, begun, last])
    assert records[-1]["state"] == "aborted"
    assert "the digests differ" in records[-1]["reason"]


def test_a_lost_launch_leaves_its_cell_aborted_with_the_reason(tmp_path: Path) -> None:
    landing = Landing(tmp_path, arm="control", number=4, prompts=PromptBook())
    landing.land(pieces_of(line("a"))[:2])
    assert list(close_unfinished(tmp_path, launch="005", reason="x")) == []
    assert list(close_unfinished(tmp_path, launch="004", reason="node b was lost")) == [KEY]
    kept = json.loads((tmp_path / PLACE / f"{KEY.filename}.cell.json").read_text())
    assert (kept["state"], kept["reason"], kept["rows"]) == ("aborted", "node b was lost", 0)


def test_another_arms_prompts_make_a_landing_cell_incomplete(tmp_path: Path) -> None:
    book = PromptBook()
    data = line("a")
    Landing(tmp_path / "x", arm="control", number=4, prompts=book).land(pieces_of(data))
    other = line("a", tokens=8)
    found = Landing(tmp_path / "y", arm="control", number=4, prompts=book).land(pieces_of(other))
    assert found[-1]["state"] == "incomplete"
    assert "the prompt has 8 tokens here and 7" in found[-1]["reason"]


@pytest.mark.parametrize(
    "path",
    [
        "responses/control/005/x.jsonl",
        "responses/other/004/x.jsonl",
        "responses/control/004/../../../plan.json",
        "plan.json",
        "responses/control/004",
        "/etc/passwd",
    ],
)
def test_a_file_that_is_not_the_launchs_is_refused(path: str, tmp_path: Path) -> None:
    landing = Landing(tmp_path, arm="control", number=4, prompts=PromptBook())
    with pytest.raises(StoreError, match="no file of its launch"):
        landing.land([Piece(path, b"x", 0)])
    assert list(tmp_path.rglob("*")) == []


def test_bytes_out_of_place_are_refused(tmp_path: Path) -> None:
    landing = Landing(tmp_path, arm="control", number=4, prompts=PromptBook())
    first, begun, rest, _ = pieces_of(line("a"))
    landing.land([first, begun])
    with pytest.raises(StoreError, match="another process wrote to it"):
        landing.land([dataclasses.replace(rest, offset=1)])


def test_a_record_follows_the_bytes_it_counts_and_nothing_comes_twice(tmp_path: Path) -> None:
    folder = tmp_path / PLACE
    launch = tmp_path / "arms/control/004"
    for path in (folder, launch / "route_hits"):
        path.mkdir(parents=True)
    follower = Follower(tmp_path)
    responses, told = folder / "cell.jsonl", folder / "cell.cell.json"
    responses.write_bytes(b"one\n")
    told.write_bytes(b"{}")
    (launch / "server.log").write_bytes(b"started\n")
    (launch / ".server.json.tmp").write_bytes(b"half")
    (launch / "route_hits/1.json").write_bytes(b"1")
    names = [Path(piece.path).name for piece in follower.take()]
    assert names == ["cell.jsonl", "server.log", "1.json", "cell.cell.json"]
    assert follower.take() == []
    with responses.open("ab") as stream:
        stream.write(b"two\n")
    told.write_bytes(b'{"state": "complete"}')
    assert [(piece.data, piece.offset) for piece in follower.take()] == [
        (b"two\n", 4),
        (b'{"state": "complete"}', None),
    ]
