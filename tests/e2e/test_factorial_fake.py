"""The factorial end to end against fake servers: files, continuation, refusals, exit codes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.e2e.fake_run import ROOT, FakeFactorial, processes_of, wait_until

FORMATS = ROOT / "evalharness" / "formats"


def check_format(name: str, value: Any) -> None:
    schema = json.loads((FORMATS / f"{name}.schema.json").read_text())
    jsonschema.validate(value, schema, jsonschema.Draft202012Validator)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FakeFactorial:
    work = FakeFactorial(tmp_path_factory.mktemp("finished"))
    code, output = work.finish()
    assert code == 0, output
    return work


def test_every_file_has_its_documented_format(finished: FakeFactorial) -> None:
    run = finished.run
    check_format("plan", json.loads((run / "plan.json").read_text()))
    servers = sorted(run.glob("arms/*/*/server.json"))
    assert [path.parts[-3] for path in servers] == ["aa", "control", "kernel"]
    for path in servers:
        check_format("server", json.loads(path.read_text()))
    assert len(finished.records()) == 3 * 2 * 2
    for record in finished.records():
        check_format("cell", record)
        assert record["state"] == "complete"
        assert record["prefix_cache_reset"] == "ok"
    lines = [
        json.loads(line)
        for path in run.glob("responses/*/*/*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert len(lines) == 3 * 2 * 5
    for line in lines:
        check_format("response", line)


def test_every_request_is_asked_once_per_arm_and_width(finished: FakeFactorial) -> None:
    asked = Counter(finished.asked())
    assert set(asked.values()) == {3 * 2}  # three launches, two widths
    assert len(asked) == 5


def test_sums_are_true(finished: FakeFactorial) -> None:
    lines = (finished.run / "SHA256SUMS").read_text().splitlines()
    listed = dict(reversed(line.split("  ", 1)) for line in lines)
    files = [p for p in finished.run.rglob("*") if p.is_file() and p.name[0] != "."]
    names = {str(path.relative_to(finished.run)) for path in files} - {"SHA256SUMS"}
    assert names == set(listed)
    for name, digest in listed.items():
        assert hashlib.sha256((finished.run / name).read_bytes()).hexdigest() == digest


def test_the_report_is_there(finished: FakeFactorial) -> None:
    for name in ("index.html", "report.md", "report.json"):
        assert (finished.run / "report" / name).stat().st_size > 1000


def test_no_key_is_stored(finished: FakeFactorial) -> None:
    server = json.loads(next(finished.run.glob("arms/kernel/*/server.json")).read_text())
    assert server["env"]["VLLM_API_KEY"] == "<redacted>"


def test_running_again_asks_nothing(finished: FakeFactorial) -> None:
    before, plan = finished.asked(), (finished.run / "plan.json").read_bytes()
    code, output = finished.finish()
    assert code == 0, output
    assert finished.asked() == before
    assert (finished.run / "plan.json").read_bytes() == plan


def test_another_arms_file_seed_or_manifest_is_refused(finished: FakeFactorial) -> None:
    for change, said in (
        (("--seed", "9"), "seed: the run has 0, asked now: 9"),
        (("--request-timeout", "5"), "settings.request_timeout_s: the run has 600.0"),
    ):
        code, output = finished.finish(*change)
        assert (code, said in output) == (2, True), output
    old = finished.arms.read_text()
    finished.arms.write_text(old.replace("bfloat16", "half"))
    code, output = finished.finish()
    finished.arms.write_text(old)
    assert code == 2
    assert "arms[kernel].argv" in output
    assert "arms_file.sha256" in output


@pytest.mark.slow
def test_kill_9_then_the_same_command(tmp_path: Path, finished: FakeFactorial) -> None:
    work = FakeFactorial(tmp_path, env={"FAKE_DELAY_S": "0.05"})
    process = work.start()
    # In the middle of the second launch: some cells complete, one in progress.
    wait_until(lambda: len(work.asked()) >= 13)
    process.kill()
    process.wait()
    wait_until(lambda: not processes_of(work.run), timeout_s=40)
    before = Counter(work.asked())
    complete = {
        (r["arm"], r["launch"], r["suite"], r["concurrency"])
        for r in work.records()
        if r["state"] == "complete"
    }
    assert 4 <= len(complete) < 12
    code, output = work.finish()
    assert code == 0, output
    after = work.records()
    assert sum(record["state"] == "complete" for record in after) == 12
    kept = [record for record in after if record["state"] != "complete"]
    assert all(record["state"] == "aborted" for record in kept)
    # Nothing complete was asked again: only what the killed cell had asked is asked twice.
    wasted = sum(record["rows"] for record in kept)
    repeated = sum(Counter(work.asked()).values()) - 30
    assert wasted <= repeated <= wasted + 4
    assert sum(before.values()) <= 30
    assert work.scores() == finished.scores()
