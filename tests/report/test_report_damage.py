"""Damaged, mixed and doubled run directories: found, named, never silently used."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evalharness.cli.main import main
from evalharness.errors import StoreError
from evalharness.report import write_report
from evalharness.runs import load_run
from evalharness.types import CellKey
from tests.report.plant import BFCL, GSM8K, NLL, Plant, SuiteSpec, paired, plant_run, write_sums

ONE_FACTOR = {"hc": ("off", "on")}
KEY = CellKey("hc", "bfcl", "tools", 4, 0)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that would be admitted."""
    return plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR))


def responses_of(run: Path, key: CellKey = KEY) -> Path:
    """Return the response file of a planted cell."""
    (file,) = run.glob(f"responses/{key.arm}/*/{key.filename}.jsonl")
    return file


def flip_byte(raw: bytes) -> bytes:
    """Change one digit inside an answer."""
    place = raw.index(b"####") + 5
    return raw[:place] + (b"9" if raw[place : place + 1] != b"9" else b"8") + raw[place + 1 :]


DAMAGE = {
    "torn last line": lambda raw: raw[:-40],
    "truncated file": lambda raw: raw[: len(raw) // 2],
    "line doubled": lambda raw: raw + raw.splitlines(keepends=True)[-1],
    "line lost": lambda raw: b"".join(raw.splitlines(keepends=True)[:-1]),
    "byte changed": flip_byte,
    "emptied": lambda raw: b"",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_cell_is_incomplete_and_named(run: Path, how: str) -> None:
    file = responses_of(run)
    file.write_bytes(DAMAGE[how](file.read_bytes()))
    assert main(["noninferiority", str(run), "--format", "json"]) in (10, 12)
    report = json.loads((run / "report" / "report.json").read_text())
    assert [arm["verdict"] for arm in report["arms"]] != ["admitted"]
    (row,) = report["stopped"]
    assert (row["arm"], row["concurrency"], row["state"]) == ("hc", 4, "incomplete")
    assert file.name in row["reason"]


def test_a_line_changed_with_its_digests_rewritten_is_still_found(run: Path) -> None:
    file = responses_of(run)
    raw = flip_byte(file.read_bytes())
    file.write_bytes(raw)
    record = file.with_name(file.name.replace(".jsonl", ".cell.json"))
    facts = json.loads(record.read_text())
    facts["responses_sha256"] = hashlib.sha256(raw).hexdigest()
    record.write_text(json.dumps(facts))
    write_sums(run)
    assert main(["noninferiority", str(run), "--format", "json"]) == 12
    assert load_run(run).cells[KEY].state == "incomplete"


def test_a_score_of_another_response_is_unobserved(run: Path) -> None:
    (scores,) = run.glob(f"scores/*/hc/*/{KEY.filename}.jsonl")
    rows = [json.loads(line) for line in scores.read_text().splitlines()]
    for row in rows[:8]:
        row["response_digest"] = "0" * 16
    scores.write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_sums(run)
    assert main(["noninferiority", str(run), "--format", "json"]) == 12


def test_a_changed_score_file_takes_the_plans_force_away(run: Path) -> None:
    (scores,) = run.glob(f"scores/*/hc/*/{KEY.filename}.jsonl")
    scores.write_text(scores.read_text().replace('"wrong"', '"correct"', 1))
    assert main(["noninferiority", str(run), "--format", "json"]) == 10
    report = json.loads((run / "report" / "report.json").read_text())
    assert any("SHA256SUMS" in reason for reason in report["exploratory"])


def test_two_complete_results_of_a_cell_are_refused(run: Path) -> None:
    shutil.copytree(responses_of(run).parent, responses_of(run).parent.with_name("009"))
    for folder in run.glob("scores/*/hc/*"):
        shutil.copytree(folder, folder.with_name("009"))
    with pytest.raises(StoreError, match="two complete results"):
        load_run(run)


def test_an_aborted_attempt_is_listed_beside_the_whole_one(run: Path) -> None:
    whole = responses_of(run)
    again = whole.parent.with_name("009") / whole.name
    again.parent.mkdir()
    again.write_bytes(whole.read_bytes()[:500])
    facts = json.loads(whole.with_name(f"{KEY.filename}.cell.json").read_text())
    facts |= {"state": "aborted", "reason": "server died", "launch": 9, "rows": 1}
    again.with_name(f"{KEY.filename}.cell.json").write_text(json.dumps(facts))
    write_sums(run)
    assert main(["noninferiority", str(run), "--format", "json"]) == 0
    report = json.loads((run / "report" / "report.json").read_text())
    (row,) = report["stopped"]
    assert (row["state"], row["reason"], row["launch"]) == ("aborted", "server died", 9)


def test_a_level_not_in_effect_makes_its_cells_incomplete(run: Path) -> None:
    (file,) = run.glob("arms/hc/*/server.json")
    facts = json.loads(file.read_text())
    facts["levels"]["hc"]["in_effect"] = False
    file.write_text(json.dumps(facts))
    write_sums(run)
    assert main(["noninferiority", str(run), "--format", "json"]) == 12


def test_missing_scores_name_the_remedy(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run / "scores")
    assert main(["noninferiority", str(run), "--format", "json"]) == 2
    assert "evalharness rescore" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "other/1"}', "\x00"])
def test_a_plan_that_is_none_is_no_traceback(
    run: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "plan.json").write_text(text)
    assert main(["noninferiority", str(run), "--format", "json"]) == 2
    assert "plan.json" in capsys.readouterr().err


OTHER = {
    "manifest": Plant(factors=ONE_FACTOR, manifest_name="another"),
    "concurrency": Plant(factors=ONE_FACTOR, concurrency=(1, 8)),
    "scorers": Plant(
        factors=ONE_FACTOR, suites=(SuiteSpec("bfcl", "tools", 80, "bfcl", "corrected/1"),)
    ),
    "margins": Plant(factors=ONE_FACTOR, margins={"bfcl": 0.2}),
    "suites": Plant(factors=ONE_FACTOR, suites=(BFCL, GSM8K)),
}


@pytest.mark.parametrize("difference", OTHER)
def test_runs_of_other_plans_are_refused_by_name(
    run: Path, difference: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = plant_run(run.with_name("other"), OTHER[difference])
    assert main(["noninferiority", str(run), str(other), "--format", "json"]) == 2
    message = capsys.readouterr().err
    assert difference in message
    assert "other" in message


def test_replays_beyond_the_plan_are_exploratory(run: Path) -> None:
    other = plant_run(
        run.with_name("other"), Plant(factors=ONE_FACTOR, created_utc="2026-11-30T08:00:00Z")
    )
    assert main(["noninferiority", str(run), str(other), "--format", "json"]) == 10
    report = json.loads((run / "report-replays" / "report.json").read_text())
    assert report["design"]["replays"] == {"planned": 1, "found": 2}
    assert any("replays" in reason for reason in report["exploratory"])


def test_declared_replays_over_two_runs_can_be_admitted(tmp_path: Path) -> None:
    # each run holds the first of two declared replays
    plans = []
    for name in ("one", "two"):
        path = plant_run(tmp_path / name, Plant(factors=ONE_FACTOR, created_utc=name))
        plan = json.loads((path / "plan.json").read_text())
        (path / "plan.json").write_text(json.dumps({**plan, "replays": 2}))
        write_sums(path)
        plans.append(str(path))
    assert main(["noninferiority", *plans]) == 0
    assert main(["noninferiority", plans[0]]) == 12


def test_the_same_run_gives_the_same_bytes(run: Path) -> None:
    first = {path: path.read_bytes() for path in write_report(run)}
    assert {path: path.read_bytes() for path in write_report(run)} == first
    assert sorted(path.name for path in first) == ["index.html", "report.json", "report.md"]


def test_other_processes_and_places_give_the_same_bytes(tmp_path: Path) -> None:
    plant = Plant(
        suites=(BFCL, NLL), factors=ONE_FACTOR,
        outcomes=paired(correct=60, wins=3, losses=6, arms=("hc", "aa")),
    )  # fmt: skip
    one = plant_run(tmp_path / "one" / "run", plant)
    two = tmp_path / "elsewhere" / "run"
    shutil.copytree(one, two)
    for seed, run in (("1", one), ("2", two)):
        subprocess.run(
            [sys.executable, "-m", "evalharness", "noninferiority", str(run)],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": f"Etc/GMT+{seed}"},
            cwd=run.parent,
            check=False,
            capture_output=True,
        )
    names = sorted(path.name for path in (one / "report").iterdir())
    assert names == ["index.html", "report.json", "report.md"]
    for name in names:
        assert (one / "report" / name).read_bytes() == (two / "report" / name).read_bytes()
