"""Where a run's time went, on planted starts and stops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalharness.report.time_spent import idle_row, time_rows
from evalharness.runs import load_run
from tests.report.plant import Plant, plant_run

# Ready after 31, 32 and 33 s, a cell of 100 s, a stop of 1.5 s: 7.5 s and 26.5 s lie between.
STARTS = {1: "2026-11-29T20:00:00Z", 2: "2026-11-29T20:02:20Z", 3: "2026-11-29T20:05:00Z"}


def planted(tmp_path: Path, *, starts: dict[int, str], waited_s: float | None = None) -> Path:
    """A run of three launches that start at these times."""
    plant = Plant(factors={"hc": ("off", "on")}, concurrency=(4,))
    run = plant_run(tmp_path / "run", plant)
    for file in run.glob("arms/*/*/server.json"):
        facts = json.loads(file.read_text())
        facts["started_utc"] = starts.get(facts["launch"], facts["started_utc"])
        file.write_text(json.dumps(facts))
    for file in run.glob("responses/*/*/*.cell.json"):
        record = json.loads(file.read_text())
        if waited_s is not None:
            record["waited_s"] = waited_s
        if record["arm"] == "hc":
            record["idle_share"] = 0.05
        file.write_text(json.dumps(record))
    return run


def parts(run: Path) -> dict[str, float]:
    """Seconds by part."""
    return {row["part"]: row["seconds"] for row in time_rows(load_run(run))}


def test_the_parts_are_those_of_the_records(tmp_path: Path) -> None:
    run = planted(tmp_path, starts=STARTS)
    assert parts(run) == {
        "server starts": 96.0,
        "requests in flight": 300.0,
        "between cells": 0.0,
        "server stops": 4.5,
        "between launches": 34.0,
    }
    shares = [row["share"] for row in time_rows(load_run(run))]
    assert sum(shares) == pytest.approx(1)


def test_waiting_between_cells_is_not_counted_twice(tmp_path: Path) -> None:
    found = parts(planted(tmp_path, starts=STARTS, waited_s=2.5))
    assert found["between cells"] == 7.5
    assert found["between launches"] == 34.0 - 2 * 2.5


def test_launches_beside_each_other_have_no_time_between(tmp_path: Path) -> None:
    # as on a cluster: all start at one moment
    assert "between launches" not in parts(planted(tmp_path, starts={}))


def test_idle_time_names_its_worst_cell(tmp_path: Path) -> None:
    row = idle_row(load_run(planted(tmp_path, starts=STARTS)))
    assert (row["cells"], row["over_bound"]) == (3, 1)
    assert row["worst_cell"] == "hc bfcl.tools C4"
    assert row["share"] == pytest.approx((0.05 + 2 * 0.004) / 3)
