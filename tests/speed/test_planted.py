"""A planted slowdown is found, and nothing where none is: simulated clocks, real pipeline.

Stored response rows -> scores -> report -> claim. The same with a real server behind a real
delaying proxy is `python -m benchmarks.bench_planted_slowdown`; its result is in docs/speed.md.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from evalharness.report import write_report
from evalharness.speed.figures import FIGURES, STEP, TOKENS_PER_S, TTFT
from evalharness.types import CellKey, Response
from tests.speed.simulated import Layout, World, plant_speed_run, speed_of

PLANTED_RUNS, NULL_RUNS = 10, 20
RECOMMENDED = Layout(repeats=8, output_tokens=48)


def row(section: dict[str, Any], figure: str, arm: str = "proxy") -> dict[str, Any]:
    """The contrast of one figure."""
    (found,) = [r for r in section["contrasts"] if (r["arm"], r["figure"]) == (arm, figure)]
    return dict(found)


def claims(folder: Path, world: World, runs: int) -> list[dict[str, str]]:
    """Return the claims of each run by figure, one run a seed."""
    sections = [
        speed_of(
            plant_speed_run(folder / str(seed), dataclasses.replace(world, seed=seed), RECOMMENDED)
        )
        for seed in range(runs)
    ]
    return [{figure: row(one, figure)["claim"] for figure in FIGURES} for one in sections]


@pytest.mark.slow
def test_five_percent_is_found_and_nothing_is_not(tmp_path: Path) -> None:
    found = claims(tmp_path / "planted", World(slowdown=1.05), PLANTED_RUNS)
    for figure in (TOKENS_PER_S, STEP):
        assert sum(one[figure] == "slower" for one in found) >= 9, figure
    null = claims(tmp_path / "null", World(), NULL_RUNS)
    for figure in (TOKENS_PER_S, STEP):
        assert sum(one[figure] != "none" for one in null) <= 1, figure


def test_the_step_figure_is_of_pure_decode(tmp_path: Path) -> None:
    # prefills four times as slow: first tokens come late, steps without a prefill are as before
    world = World(prefill_slowdown=4.0, launch_sd=0.001, step_sd=0.01, stall_share=0, drift=0)
    section = speed_of(plant_speed_run(tmp_path / "run", world))
    assert row(section, STEP)["ratio"]["estimate"] == pytest.approx(1, abs=0.01)
    assert row(section, TTFT)["claim"] == "slower"
    assert row(section, TTFT)["ratio"]["estimate"] > 1.2


def test_alternation_takes_a_steady_drift_out(tmp_path: Path) -> None:
    world = World(drift=0.5, launch_sd=0, step_sd=0, stall_share=0)
    section = speed_of(plant_speed_run(tmp_path / "run", world))
    ratio = row(section, STEP)["ratio"]["estimate"]
    assert ratio == pytest.approx(1, abs=0.01)  # the time grew by half over the run


def test_one_launch_of_each_arm_claims_nothing(tmp_path: Path) -> None:
    layout = Layout(repeats=1, order="randomized")
    section = speed_of(plant_speed_run(tmp_path / "run", World(slowdown=2.0), layout))
    found = row(section, TOKENS_PER_S)
    assert (found["claim"], found["repeats"]) == ("none", 1)
    assert found["ratio"]["estimate"] == pytest.approx(0.5, rel=0.1)
    assert "an interval needs 6" in found["reason"]


def test_speed_stands_beside_quality_in_every_format(tmp_path: Path) -> None:
    layout = Layout(quality=True)
    run = plant_speed_run(tmp_path / "run", World(slowdown=1.2), layout)
    html, markdown, document = (path.read_text() for path in write_report(run))
    section = json.loads(document)["speed"]
    (arm,) = section["arms"]
    assert arm["quality"] == "admitted"
    assert arm["sentence"].startswith("slower by 1") and arm["sentence"].endswith("but admitted")
    for page in (html, markdown):
        assert arm["sentence"].split(" at ")[0] in page
    # a speed suite is no quality suite: it has no counts, and its repeats are no replays
    assert {r["suite"] for r in json.loads(document)["counts"]} == {"gsm8k"}
    assert json.loads(document)["design"]["replays"] == {"planned": 1, "found": 1}
    assert len(section["cells"]) == 3 * layout.repeats


@pytest.mark.parametrize("repeats", [1, 6])
def test_a_table_without_any_interval_is_one_sentence_in_a_pull_request(
    tmp_path: Path, repeats: int
) -> None:
    run = plant_speed_run(tmp_path / "run", World(), Layout(repeats=repeats, quality=True))
    html, markdown, document = (path.read_text() for path in write_report(run))
    assert all(row["ratio"] for row in json.loads(document)["speed"]["contrasts"])
    assert ("(no interval)" in html) == (repeats == 1)
    assert "(no interval)" not in markdown
    assert ("Arm / control (interval)" in markdown) == (repeats > 1)
    words = "No speed figure has an interval: 1 launch of each arm: an interval needs 6"
    assert (words in markdown) == (repeats == 1)
    assert ("1 repeat planned" in html) == (repeats == 1)


def test_a_cell_that_is_absent_or_failed_withholds_the_claim(tmp_path: Path) -> None:
    def change(key: CellKey, found: list[Response]) -> list[Response]:
        if (key.arm, key.replicate) != ("proxy", 2):
            return found
        broken = dataclasses.replace(found[-1], status="timeout", body="", usage=None)
        return [*found[:-1], broken]

    run = plant_speed_run(tmp_path / "run", World(slowdown=0.5), Layout(change=change))
    found = row(speed_of(run), TOKENS_PER_S)
    assert found["claim"] == "none"
    assert "repeat 2, arm: 1 of 8 requests failed: timeout" in found["reason"]


def test_a_server_without_streaming_keeps_its_rate(tmp_path: Path) -> None:
    def change(key: CellKey, found: list[Response]) -> list[Response]:
        usage = {"completion_tokens": 16}
        body = {"model": "m", "choices": [{"finish_reason": "length"}], "usage": usage}
        return [dataclasses.replace(r, body=json.dumps(body), chunk_ns=()) for r in found]

    world, layout = World(slowdown=1.2), Layout(change=change)
    section = speed_of(plant_speed_run(tmp_path / "run", world, layout))
    assert row(section, TOKENS_PER_S)["claim"] == "slower"
    step = row(section, STEP)
    assert (step["ratio"], step["claim"]) == (None, "none")
    assert "not streamed" in step["reason"]
