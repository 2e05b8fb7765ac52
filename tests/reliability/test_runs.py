"""Disturbed runs, once each: disks, signals, clocks, limits, hands."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.e2e.fake_run import FakeFactorial
from tests.reliability.damage import damaged, rows_removed
from tests.reliability.disk import WHY_NOT, disk_full, may_mount, read_only
from tests.reliability.going_on import undisturbed
from tests.reliability.interrupts import KINDS, Kind, one
from tests.reliability.machine import clock_jumps, open_files, two_harnesses

pytestmark = pytest.mark.slow
# The rest of the kinds are tests/e2e/test_factorial_faults.py's, or only the long run's.
SHORT = [kind for kind in KINDS if kind.name.startswith(("SIGTERM", "server killed", "terminal"))]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> FakeFactorial:
    """A run that nothing disturbed."""
    return undisturbed(tmp_path_factory.mktemp("expected"))


@pytest.mark.parametrize("kind", SHORT, ids=lambda kind: kind.name)
def test_a_disturbed_run_goes_on(tmp_path: Path, expected: FakeFactorial, kind: Kind) -> None:
    tally = one(tmp_path, kind, expected, random.Random(8))
    assert tally.clean, tally.notes


def test_a_dead_engine_behind_a_living_front_end_aborts_its_cell(tmp_path: Path) -> None:
    faults = '{"2": "engine_dead"}'
    work = FakeFactorial(tmp_path, concurrency="1", aa=False, env={"FAKE_FAULTS": faults})
    code, output = work.finish()
    assert code == 3, output
    assert [record["state"] for record in work.records()] == ["aborted", "aborted"]
    assert output.count("missing: ") == 4


def test_a_full_disk(tmp_path: Path, expected: FakeFactorial) -> None:
    if not may_mount(tmp_path / "try"):
        pytest.skip(WHY_NOT)
    tally = disk_full(tmp_path, 2, expected)
    assert tally.clean, tally.notes


def test_a_read_only_run(tmp_path: Path) -> None:
    if not may_mount(tmp_path / "try"):
        pytest.skip(WHY_NOT)
    tally = read_only(tmp_path, 1)
    assert tally.clean, tally.notes


def test_a_jumping_clock(tmp_path: Path, expected: FakeFactorial) -> None:
    tally = clock_jumps(tmp_path, 1, expected)
    assert tally.clean, tally.notes


def test_the_limit_of_open_files(tmp_path: Path) -> None:
    tally = open_files(tmp_path)
    assert tally.clean, tally.notes


def test_four_harnesses_on_one_run(tmp_path: Path, expected: FakeFactorial) -> None:
    tally = two_harnesses(tmp_path, 1, expected)
    assert tally.clean, tally.notes


def test_damage_to_stored_lines_is_found(tmp_path: Path) -> None:
    for tally in damaged(tmp_path, 40, seed=3):
        assert tally.clean, tally.notes


def test_a_tenth_of_the_rows_removed_never_admits(tmp_path: Path) -> None:
    for tally in rows_removed(tmp_path, 3, seed=3):
        assert tally.clean, tally.notes
