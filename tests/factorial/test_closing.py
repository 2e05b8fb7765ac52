"""A closed run goes on only if nothing of it changed; what it makes again may be gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from evalharness.errors import StoreError
from evalharness.factorial.cells import close_unfinished, complete_cells
from evalharness.factorial.closing import has_unlisted_scores, refuse_changed
from evalharness.store import read_sums, write_sums
from tests.report.plant import Plant, plant_run


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A small run that ended."""
    plant = Plant(factors={"hc": ("off", "on")}, concurrency=(1, 4))
    run = plant_run(tmp_path / "run", plant)
    (run / "report").mkdir()
    (run / "report" / "report.md").write_text("one")
    write_sums(run)
    refuse_changed(run)
    return run


def one(run: Path, pattern: str) -> Path:
    return sorted(run.glob(pattern))[0]


CELL = "responses/hc/*/*.cell.json"


def edit_scores(run: Path) -> Path:
    file = one(run, "scores/*/hc/*/*.jsonl")
    file.write_text(file.read_text().replace('"wrong"', '"correct"'))
    return file


def delete_server(run: Path) -> Path:
    file = one(run, "arms/hc/*/server.json")
    file.unlink()
    return file


def delete_record(run: Path) -> Path:
    file = one(run, CELL)
    file.unlink()
    return file


def edit_record(run: Path) -> Path:
    file = one(run, CELL)
    file.write_text(json.dumps({**json.loads(file.read_text()), "wall_s": 1e3}))
    return file


@pytest.mark.parametrize("change", [edit_scores, delete_server, delete_record, edit_record])
def test_what_changed_is_named_and_stays_marked(
    closed: Path, change: Callable[[Path], Path]
) -> None:
    before = read_sums(closed)
    name = change(closed).relative_to(closed).as_posix()
    with pytest.raises(StoreError, match=rf"changed after it was closed(.|\n)*{name}: "):
        refuse_changed(closed)
    write_sums(closed)
    assert read_sums(closed) == before
    with pytest.raises(StoreError, match=name):
        refuse_changed(closed)


def test_what_the_run_makes_again_may_be_gone(closed: Path) -> None:
    before = read_sums(closed) or {}
    one(closed, "scores/*/hc/*/*.jsonl").unlink()
    record = one(closed, CELL)
    responses = record.with_name(record.name.replace(".cell.json", ".jsonl"))
    record.unlink()
    responses.unlink()
    refuse_changed(closed)
    write_sums(closed)
    assert responses.relative_to(closed).as_posix() in (read_sums(closed) or {})
    assert read_sums(closed) == before


def test_reports_are_written_again_and_new_files_are_listed(closed: Path) -> None:
    before = read_sums(closed) or {}
    (closed / "report" / "report.md").write_text("two")
    new = closed / "arms" / "hc" / "009" / "server.json"
    new.parent.mkdir()
    new.write_text("{}")
    refuse_changed(closed)
    write_sums(closed)
    after = read_sums(closed) or {}
    assert set(after) - set(before) == {"arms/hc/009/server.json"}
    assert {name for name in before if after[name] != before[name]} == {"report/report.md"}


def test_scores_that_nobody_vouches_for_are_known(closed: Path) -> None:
    assert not has_unlisted_scores(closed)
    file = one(closed, "scores/*/hc/*/*.jsonl")
    file.with_name("other.jsonl").write_text("")
    assert has_unlisted_scores(closed)


def test_a_run_that_never_ended_has_nothing_to_compare_with(closed: Path) -> None:
    (closed / "SHA256SUMS").unlink()
    edit_scores(closed)
    refuse_changed(closed)
    assert has_unlisted_scores(closed)


BROKEN = ("[]", "{}", "\x00", '{"state": "complete"}', '{"state": "aborted"}')
VALUES: tuple[dict[str, object], ...] = (
    {"suite": []},
    {"shard": [1, 2, 3]},
    {"concurrency": "x"},
    {"state": "done"},
)


@pytest.mark.parametrize("broken", [*BROKEN, *VALUES])
def test_a_broken_record_is_refused_by_name(closed: Path, broken: str | dict[str, object]) -> None:
    file = one(closed, CELL)
    facts = json.loads(file.read_text())
    file.write_text(broken if isinstance(broken, str) else json.dumps({**facts, **broken}))
    with pytest.raises(StoreError, match=file.name):
        complete_cells(closed)
    with pytest.raises(StoreError, match=file.name):
        list(close_unfinished(closed))


def test_a_directory_in_the_place_of_unfinished_responses_is_refused(closed: Path) -> None:
    file = one(closed, CELL)
    facts = {**json.loads(file.read_text()), "state": "aborted", "responses_sha256": None}
    file.write_text(json.dumps(facts))
    responses = file.with_name(file.name.replace(".cell.json", ".jsonl"))
    responses.unlink()
    responses.mkdir()
    with pytest.raises(StoreError, match=responses.name):
        list(close_unfinished(closed))
