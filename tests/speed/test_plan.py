"""How repeats become launches, and waves become cells."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from evalharness.arms import PlannedLaunch, launch_order, load_arms_file
from evalharness.errors import ArmsError, PlanError
from evalharness.factorial.cells import build_requests, planned_cells
from evalharness.factorial.planning import Asked, build_plan
from evalharness.manifest import Manifest, load_cases, load_manifest
from evalharness.types import CellKey

ROOT = Path(__file__).parents[2]
ARMS = (
    "endpoint: {{base_url: 'http://127.0.0.1:1', served_name: m}}\n"
    "factors: {{f: {{off: {{}}, on: {{endpoint: {{base_url: 'http://127.0.0.1:2'}}}}}}}}\n"
    "control: {{f: off}}\norder: {order}\n"
    "plan: {{alpha: 0.025, margins: {margins}, speed_repeats: {repeats}, gate_concurrency: [1]}}\n"
)


def order(kind: str, *, replays: int = 1, repeats: int = 4, seed: int = 3) -> list[PlannedLaunch]:
    """The launches of three arms and the A/A launch."""
    names = ["control", "a", "b"]
    return list(
        launch_order(names, aa=True, order=kind, seed=seed, replays=replays, speed_repeats=repeats)
    )


def blocks(launches: list[PlannedLaunch]) -> list[list[str]]:
    """Names of the launches, block by block of four."""
    return [[one.arm for one in launches[i : i + 4]] for i in range(0, len(launches), 4)]


def test_every_second_block_runs_backwards() -> None:
    found = blocks(order("alternating"))
    assert len(found) == 4
    assert all(sorted(block) == ["a", "aa", "b", "control"] for block in found)
    assert found[1] == found[0][::-1]
    assert found[3] == found[2][::-1]
    # over a pair of blocks, every arm has the same mean place: a steady drift cancels
    for arm in found[0]:
        assert found[0].index(arm) + found[1].index(arm) == 3
    assert {tuple(blocks(order("alternating", seed=s))[0]) for s in range(20)} != {tuple(found[0])}


@pytest.mark.parametrize("kind", ["blocked", "alternating"])
def test_blocks_beyond_the_replays_are_for_speed_alone(kind: str) -> None:
    launches = order(kind, replays=2, repeats=4)
    assert [one.replicates for one in launches[::4]] == [(0,), (1,), (2,), (3,)]
    assert [one.speed_only for one in launches[::4]] == [False, False, True, True]
    # the replays themselves are launched as they would be without any repeats
    assert launches[:8] == order(kind, replays=2, repeats=0)


def test_a_random_order_has_one_launch_an_arm() -> None:
    assert all(one.replicates == (0,) for one in order("randomized", repeats=1))


def manifest(tmp_path: Path, **changes: Any) -> Manifest:
    """The small speed manifest beside a quality suite."""
    document = json.loads((ROOT / "manifests/speed-small.json").read_text())
    document["suites"]["speed"]["options"] |= changes
    document["suites"]["gsm8k"] = json.loads((ROOT / "manifests/smoke.json").read_text())["suites"][
        "gsm8k"
    ]
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(document))
    return load_manifest(path)


def test_cells_ask_waves_of_c_and_repeats_ask_nothing_else(tmp_path: Path) -> None:
    given = manifest(tmp_path)
    whole = planned_cells(given, PlannedLaunch("a", (0,)), (1, 4, 16), shards=2)
    counts = {(c.key.suite, c.key.concurrency): c.cases for c in whole if c.key.suite == "speed"}
    assert counts == {("speed", 1): 2, ("speed", 4): 8, ("speed", 16): 32}
    assert {c.key.suite for c in whole} == {"speed", "gsm8k"}
    assert all(c.key.shard.of == 1 for c in whole if c.key.suite == "speed")
    only = planned_cells(given, PlannedLaunch("a", (5,), speed_only=True), (1, 4))
    assert {(c.key.suite, c.key.replicate) for c in only} == {("speed", 5)}


def test_requests_are_as_many_as_the_cell_has_and_new_in_every_repeat(tmp_path: Path) -> None:
    given = manifest(tmp_path)
    cases, entry = load_cases(given)["speed"], given.entries["speed"]
    key = CellKey("a", "speed", "stream", 4, 0)
    first = build_requests(entry, cases, key, model="m", seed=7)
    assert len(first) == 8
    prompts = [tuple(json.loads(one.body_json)["prompt"]) for one in first]
    assert len(set(prompts)) == 8 and all(len(prompt) == 64 for prompt in prompts)
    assert first == build_requests(
        entry, cases, dataclasses.replace(key, arm="b"), model="m", seed=7
    )
    again = build_requests(entry, cases, dataclasses.replace(key, replicate=1), model="m", seed=7)
    assert not set(prompts) & {tuple(json.loads(one.body_json)["prompt"]) for one in again}


def arms(tmp_path: Path, **words: object) -> Any:
    """The arms file with these words."""
    text = ARMS.format(**{"order": "alternating", "margins": "{}", "repeats": 6, **words})
    path = tmp_path / "arms.yaml"
    path.write_text(text)
    return load_arms_file(path)


def test_repeats_in_one_launch_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArmsError, match="order: alternating"):
        arms(tmp_path, order="randomized")


@pytest.mark.parametrize(
    ("margins", "options", "concurrency", "message"),
    [
        ("{speed: 0.1}", {}, (1,), "measured, not gated"),
        ("{}", {"waves": 1}, (1,), "at least 2"),
        ("{}", {"waves": "3"}, (1,), "found '3'"),
        ("{}", {}, (1, 17), "32 cases, but 2 waves at C17 need 34"),
    ],
)
def test_what_a_speed_suite_cannot_be_run_with_is_refused(
    tmp_path: Path, margins: str, options: dict[str, Any], concurrency: Any, message: str
) -> None:
    given = manifest(tmp_path, **options)
    with pytest.raises(PlanError, match=message):
        build_plan(arms(tmp_path, margins=margins), given, (), Asked(concurrency, 1, {}))


def test_the_plan_freezes_repeats_and_waves(tmp_path: Path) -> None:
    plan = build_plan(arms(tmp_path), manifest(tmp_path), (), Asked((1, 4), 1, {}))
    assert (plan["replays"], plan["speed_repeats"]) == (1, 6)
    assert plan["suites"]["speed"]["waves"] == 2
    assert "waves" not in plan["suites"]["gsm8k"]


def test_repeats_without_a_speed_suite_are_refused(tmp_path: Path) -> None:
    given = load_manifest(ROOT / "manifests/smoke.json")
    with pytest.raises(PlanError, match="has no speed suite"):
        build_plan(arms(tmp_path), given, (), Asked((1,), 1, {}))
