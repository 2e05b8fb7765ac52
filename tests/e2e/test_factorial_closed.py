"""A run is closed with its digests: going on never makes what changed since look sound."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evalharness.cli.main import main
from evalharness.store import read_sums
from tests.e2e.fake_run import FakeFactorial, wait_until


def judged(work: FakeFactorial) -> list[str]:
    """Return why the verdicts are exploratory."""
    main(["noninferiority", str(work.run), "--format", "json"])
    report = json.loads((work.run / "report" / "report.json").read_text())
    return list(report["exploratory"])


def edit_scores(work: FakeFactorial) -> Path:
    file = sorted(work.run.glob("scores/gsm8k.strict-1/kernel/*/*.jsonl"))[0]
    file.write_text(file.read_text().replace('"wrong"', '"correct"'))
    return file


@pytest.fixture
def work(tmp_path: Path) -> FakeFactorial:
    """A closed run, not exploratory."""
    work = FakeFactorial(tmp_path, concurrency="1", cases=2, aa=False)
    assert work.finish()[0] == 0
    assert judged(work) == []
    return work


def test_a_changed_run_is_not_closed_again(work: FakeFactorial) -> None:
    sums = (work.run / "SHA256SUMS").read_bytes()
    file = edit_scores(work)
    server = next(work.run.glob("arms/kernel/*/server.json"))
    server.unlink()
    code, output = work.finish()
    assert code == 2, output
    for changed in (file, server):
        assert changed.relative_to(work.run).as_posix() in output
    assert (work.run / "SHA256SUMS").read_bytes() == sums
    assert len(judged(work)) == 2


def test_scores_without_digests_are_scored_again_and_compared(work: FakeFactorial) -> None:
    (work.run / "SHA256SUMS").unlink()
    file = edit_scores(work)
    code, output = work.finish()
    assert code == 2, output
    assert str(file) in output
    assert not (work.run / "SHA256SUMS").exists()
    file.unlink()
    code, output = work.finish()
    assert code == 0, output
    assert judged(work) == []


def test_deleted_scores_come_back(work: FakeFactorial) -> None:
    for file in work.run.glob("scores/*/kernel/*/*.jsonl"):
        file.unlink()
    code, output = work.finish()
    assert code == 0, output
    assert judged(work) == []


def test_a_cell_deleted_to_be_asked_again_leaves_its_trace(work: FakeFactorial) -> None:
    for file in work.run.glob("responses/kernel/*/schema*"):
        file.unlink()
    code, output = work.finish()
    assert code == 0, output
    assert all("not found" in reason for reason in judged(work))
    assert judged(work)


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_is_sound(tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path, env={"FAKE_DELAY_S": "0.2"}, concurrency="1", cases=2, aa=False)
    process = work.start()
    wait_until(lambda: len(work.asked()) >= 6)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 12, output
    listed = read_sums(work.run)
    assert listed
    process = work.start()
    wait_until(lambda: len(work.asked()) >= 8)
    time.sleep(0.1)
    process.kill()
    process.wait()
    code, output = work.finish()
    assert code == 0, output
    assert judged(work) == []
    kept = read_sums(work.run) or {}
    assert all(kept[name] == listed[name] for name in listed if not name.startswith("report"))


def test_what_a_killed_session_left_running_is_gone_before_the_run_is_closed(
    work: FakeFactorial,
) -> None:
    """A server that is still ending would write its log after the digests were taken."""
    env = {**os.environ, "EVALHARNESS_RUN": str(work.run.resolve())}
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=env)
    try:
        assert work.finish()[0] == 0
        assert left.wait(timeout=30) == -signal.SIGKILL
    finally:
        left.kill()
