"""SHA256SUMS: nothing that a verdict rests on is believed unless it is listed and unchanged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evalharness.cli.main import main
from evalharness.errors import StoreError
from evalharness.noninferiority import Asked
from evalharness.report import report_document
from evalharness.runs import load_run
from tests.report.plant import Plant, paired, plant_run, write_sums

PLANTED: dict[str, Any] = {
    "factors": {"hc": ("off", "on")},
    "concurrency": (4,),
    "outcomes": paired(correct=70, wins=0, losses=30, arms=("hc",)),
}
HARMFUL = Plant(**PLANTED)


@pytest.fixture
def harmful(tmp_path: Path) -> Path:
    """A run that shows harm, with the scores of the harmful arm edited afterwards."""
    run = plant_run(tmp_path / "run", HARMFUL)
    assert judged(run) == (11, "harm shown")
    edit_scores(run)
    return run


def edit_scores(run: Path) -> None:
    (file,) = run.glob("scores/*/hc/*/*.jsonl")
    file.write_text(file.read_text().replace('"wrong"', '"correct"'))


def judged(run: Path) -> tuple[int, str]:
    code = main(["noninferiority", str(run), "--format", "json"])
    report = json.loads((run / "report" / "report.json").read_text())
    return code, report["arms"][0]["verdict"]


def cut_sums(run: Path) -> None:
    sums = run / "SHA256SUMS"
    sums.write_text("".join(sums.read_text().splitlines(keepends=True)[:2]))


def emptied(run: Path) -> None:
    (run / "SHA256SUMS").write_text("")


def deleted(run: Path) -> None:
    (run / "SHA256SUMS").unlink()


def moved_out(run: Path) -> None:
    away = run.with_name("away")
    shutil.move(run / "scores", away)
    (run / "scores").symlink_to(away)


@pytest.mark.parametrize("hide", [cut_sums, emptied, deleted, moved_out])
def test_edited_scores_are_never_admitted(harmful: Path, hide: Callable[[Path], None]) -> None:
    hide(harmful)
    assert judged(harmful) == (10, "exploratory")


@pytest.mark.parametrize("arm", ["hc", "control", "aa"])
def test_a_cell_that_no_gate_needs_hides_nothing_when_it_is_gone(tmp_path: Path, arm: str) -> None:
    plant = Plant(**(PLANTED | {"concurrency": (1, 4)}))
    run = plant_run(tmp_path / "run", plant)
    plan = json.loads((run / "plan.json").read_text()) | {"gate_concurrency": [4]}
    (run / "plan.json").write_text(json.dumps(plan))
    write_sums(run)
    assert judged(run) == (11, "harm shown")
    for file in run.glob("scores/*/hc/*/*.jsonl"):
        file.write_text(file.read_text().replace('"wrong"', '"correct"'))
    for file in [*run.glob(f"responses/{arm}/*/*c1-*"), *run.glob(f"scores/*/{arm}/*/*c1-*")]:
        file.unlink()
    deleted(run)
    assert judged(run) == (10, "exploratory")


def test_a_plan_with_a_wider_margin_outside_the_run_is_a_changed_plan(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", HARMFUL)
    plan = json.loads((run / "plan.json").read_text())
    (tmp_path / "wide.json").write_text(json.dumps({**plan, "margins": {"bfcl": 0.6}}))
    (run / "plan.json").unlink()
    (run / "plan.json").symlink_to(tmp_path / "wide.json")
    assert judged(run) == (10, "exploratory")


def test_a_server_file_nobody_listed_counts_against_the_run(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(concurrency=(4,)))
    (file,) = run.glob("arms/hc/*/server.json")
    shutil.copytree(file.parent, file.parent.with_name("099"))
    (note,) = load_run(run).notes
    assert note.kind == "changed"
    assert "arms/hc/099/server.json: read, but SHA256SUMS does not list it" in note.text


def test_evidence_on_another_disk_is_as_good(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", HARMFUL)
    moved_out(run)
    assert judged(run) == (11, "harm shown")


def test_a_run_that_was_cut_off_has_no_sums_yet(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", HARMFUL)
    for record in run.glob("responses/aa/*/*.cell.json"):
        facts = json.loads(record.read_text())
        record.write_text(json.dumps({**facts, "state": "aborted", "reason": "killed"}))
    deleted(run)
    (note,) = load_run(run).notes
    assert note.kind == "absent"
    write_sums(run)
    assert load_run(run).notes == ()


def test_reports_and_the_users_own_files_are_no_evidence(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", HARMFUL)
    for name in ("report-replays/report.md", "run.log"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("one")
    write_sums(run)
    for name in ("report-replays/report.md", "run.log"):
        (run / name).write_text("two")
    assert load_run(run).notes == ()


def strange(line: bytes) -> Callable[[Path], None]:
    def write(run: Path) -> None:
        path = run / "SHA256SUMS"
        path.write_bytes(path.read_bytes() + line)

    return write


def as_directory(run: Path) -> None:
    (run / "SHA256SUMS").unlink()
    (run / "SHA256SUMS").mkdir()


STRANGE: dict[str, Callable[[Path], None]] = {
    "no UTF-8": strange(b"\xff\xfe\n"),
    "blank line": strange(b"\n"),
    "binary mark": strange(b"0" * 64 + b" *plan.json\n"),
    "short digest": strange(b"0" * 63 + b"  x\n"),
    "outside": strange(b"0" * 64 + b"  ../x\n"),
    "absolute": strange(b"0" * 64 + b"  /dev/zero\n"),
    "zero byte": strange(b"0" * 64 + b"  a\0b\n"),
    "twice": strange(b"0" * 64 + b"  plan.json\n"),
    "over-long name": strange(b"0" * 64 + b"  scores/" + b"a" * 5000 + b"\n"),
    "directory": as_directory,
}


@pytest.mark.parametrize("how", STRANGE)
def test_sums_that_are_none_are_refused(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = plant_run(tmp_path / "run", HARMFUL)
    STRANGE[how](run)
    assert main(["noninferiority", str(run)]) == 2
    assert capsys.readouterr().err.startswith(f"evalharness: {run}/")


@pytest.mark.parametrize("name", ["manifest.json", "scores"])
def test_a_directory_in_a_files_place_is_refused(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = plant_run(tmp_path / "run", HARMFUL)
    file = run / name if name != "scores" else next(run.glob("scores/*/hc/*/*.jsonl"))
    file.unlink()
    file.mkdir()
    assert main(["noninferiority", str(run)]) == 2
    assert f"{file}: Is a directory" in capsys.readouterr().err


def test_a_torn_score_file_says_what_mends_it(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", HARMFUL)
    (file,) = run.glob("scores/*/hc/*/*.jsonl")
    os.truncate(file, file.stat().st_size - 9)
    with pytest.raises(StoreError, match=rf"delete {file}, then run `evalharness rescore RUN`"):
        load_run(run)


def test_one_broken_run_does_not_end_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [plant_run(tmp_path / name, HARMFUL) for name in ("one", "two")]

    def broken(paths: Sequence[Path], asked: Asked) -> dict[str, Any]:
        if paths[0].name == "one":
            raise ZeroDivisionError("of its own")
        return report_document(paths, asked)

    monkeypatch.setattr("evalharness.report.each.report_document", broken)
    assert main(["noninferiority", "--each", *map(str, runs)]) == 1
    said = capsys.readouterr().out
    assert f"{runs[0]}: internal error: ZeroDivisionError: of its own" in said
    assert f"{runs[1]}: " in said.splitlines()[-1]
