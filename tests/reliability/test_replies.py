"""Each hostile reply once; `python -m tests.reliability.run` plants them many times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reliability.bad_input import fuzz, shares_of
from tests.reliability.chaos_server import KINDS
from tests.reliability.elsewhere import proxies, redirects, side_answers
from tests.reliability.load import MAX_RSS_MIB
from tests.reliability.replies import expected_statuses, try_kind
from tests.reliability.secrets_run import KEY, finding_key, planted_key
from tests.reliability.tally import Tally

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_has_its_outcome(kind: str) -> None:
    tally = try_kind(kind, 0)
    assert tally.clean, tally.notes


def test_kinds_have_different_outcomes() -> None:
    assert {status for kind in KINDS for status in expected_statuses(kind)} == {
        "ok",
        "http_error",
        "timeout",
        "transport_error",
    }


async def test_no_redirect_is_followed() -> None:
    tally = await redirects()
    assert tally.clean, tally.notes


async def test_a_proxy_is_used_only_when_asked_for() -> None:
    tally = await proxies()
    assert tally.clean, tally.notes


async def test_side_questions_are_bounded_and_keep_no_key() -> None:
    tally = await side_answers()
    assert tally.clean, tally.notes


async def test_a_planted_key_is_nowhere(tmp_path: Path) -> None:
    tally = await planted_key(tmp_path)
    assert tally.clean, tally.notes


def test_the_search_for_the_key_finds_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff" + KEY.encode().hex().encode())
    (tmp_path / f"x{KEY}").write_bytes(b"")
    assert len(finding_key(tmp_path, KEY)) == 2


def test_fuzz_of_every_input(tmp_path: Path) -> None:
    tallies = fuzz(tmp_path, shares_of(2_000), seed=1)
    assert sum(tally.times for tally in tallies) >= 2_000
    assert [note for tally in tallies for note in tally.notes] == []


def test_load_loses_no_row_and_stays_small() -> None:
    # a process of its own: what earlier tests imported is not the harness's memory
    command = [sys.executable, "-m", "tests.reliability.load", "--requests", "1000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert (figures["rows"], figures["lost"], figures["wrong"]) == (1_000, 0, 0)
    assert figures["concurrency_reached_least"] > 60
    memory = figures["memory_mib_at_percent_of_first_cell"]
    assert memory["100"] - memory["25"] < 40, "memory grows with the requests"
    assert MAX_RSS_MIB == 300


def test_a_tally_counts_what_does_not_hold() -> None:
    tally = Tally("x", times=1)
    tally.check(True, "holds")
    assert tally.clean
    tally.check(False, "wrong")
    tally.check(False, "lost", loses=True)
    assert (tally.lost, tally.wrong, tally.clean, len(tally.notes)) == (1, 1, False, 2)
    assert not Tally("never tried").clean
