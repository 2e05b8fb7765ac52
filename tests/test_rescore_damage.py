"""Rescoring a damaged run: named, never scored, and whole again once the file is restored."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalharness import scoring, scoring_cell, scoring_worker
from evalharness.cli.main import main
from evalharness.errors import DiskFullError
from evalharness.manifest import frozen_manifest
from evalharness.scoring import score_run
from evalharness.store.lines import encode_line
from tests.test_scoring import REPLIES, ROOT, own_manifest
from tools.stored_run import make_response, write_run


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    manifest, cases = own_manifest()
    write_run(tmp_path, manifest, cases, replies=REPLIES, arms=("control", "on"))
    return tmp_path


def _agree(responses: Path) -> None:
    """Make the cell record say of its response file what is there."""
    path = responses.with_name(responses.name.replace(".jsonl", ".cell.json"))
    record = json.loads(path.read_text())
    record["responses_sha256"] = hashlib.sha256(responses.read_bytes()).hexdigest()
    path.write_text(json.dumps(record))


def test_responses_that_cannot_be_scored_are_named_and_stop_nothing(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_dir / "responses/on/001/bfcl.tools-c1-r0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    manifest, cases = own_manifest()
    good = make_response(manifest.entries["bfcl"], cases["bfcl"][0], "{}", mode="tools")
    damaged = [
        lines[0].replace(b'"status":"ok"', b'"status":"no"', 1),
        lines[1][:-30] + b"\n",
        b"not json\n",
        encode_line(replace(good, case_id="nobody")),
        encode_line(replace(good, case_id=7)),  # type: ignore[arg-type]
        encode_line(replace(good, body=None)),  # type: ignore[arg-type]
        encode_line(replace(good, status="fine")),  # type: ignore[arg-type]
        *lines[2:],
        lines[2],
    ]
    path.write_bytes(b"".join(damaged))
    numbers = [*range(1, 8), len(damaged)]
    scores = run_dir / "scores/bfcl.official-1/on/001/bfcl.tools-c1-r0.jsonl"

    # Not what the record says: every line is named, and nothing is kept of the cell.
    assert main(["rescore", str(run_dir), "--scorer", "official"]) == 12
    errors = capsys.readouterr().err
    assert all(f"{path} line {number}: " in errors for number in numbers)
    assert not scores.exists()

    _agree(path)
    assert main(["rescore", str(run_dir), "--scorer", "official"]) == 12
    errors = capsys.readouterr().err
    assert all(f"{path} line {number}: " in errors for number in numbers)
    assert len(scores.read_bytes().splitlines()) == len(lines) - 2


def _lose_a_line(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [_lose_a_line, Path.unlink, _make_folder])
def test_a_cell_that_is_not_what_its_record_says_gets_no_scores_until_it_is_restored(
    run_dir: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    path = run_dir / "responses/on/001/gsm8k.chat-c1-r0.jsonl"
    whole = path.read_bytes()
    damage(path)
    assert main(["rescore", str(run_dir)]) == 12
    told = capsys.readouterr()
    assert f"{path}: " in told.err and "no scores of this cell" in told.err
    assert "1 faults" in told.out
    assert not list(run_dir.glob("scores/*/on/001/gsm8k.chat-c1-r0.jsonl"))
    if path.is_dir():
        path.rmdir()
    path.write_bytes(whole)
    assert main(["rescore", str(run_dir)]) == 0
    assert len(list(run_dir.glob("scores/gsm8k.*/on/001/gsm8k.chat-c1-r0.jsonl"))) == 3


@pytest.mark.parametrize("torn", [b"", b'{"case_id": 1\n', b"\xff\n", b"[" * 100_000, b"{}\n"])
def test_a_torn_score_file_is_to_be_deleted_and_not_a_scorers_change(
    run_dir: Path, capsys: pytest.CaptureFixture[str], torn: bytes
) -> None:
    score_run(run_dir)
    path = run_dir / "scores/gsm8k.strict-1/on/001/gsm8k.chat-c1-r0.jsonl"
    whole = path.read_bytes()
    path.write_bytes(torn)
    assert main(["rescore", str(run_dir), "--scorer", "gsm8k=strict"]) == 12
    told = capsys.readouterr().err
    assert f"{path} line 1: damaged" in told and "delete that file and rescore again" in told
    path.unlink()
    assert main(["rescore", str(run_dir), "--scorer", "gsm8k=strict"]) == 0
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"suite": []}, "suite: "),
        ({"suite": "other"}, "suite 'other' is not in the run's manifest"),
        ({"state": 5}, "state: "),
        ({"state": "done"}, "state: "),
        ({"replicate": 0.0}, "replicate: "),
        ("[]", "expected a cell file"),
        ("[" * 100_000, "not JSON"),
        (None, "Is a directory"),
    ],
)
def test_a_damaged_cell_record_is_refused_and_never_skipped(
    run_dir: Path, capsys: pytest.CaptureFixture[str], change: Any, told: str
) -> None:
    path = run_dir / "responses/on/001/gsm8k.chat-c1-r0.cell.json"
    if isinstance(change, dict):
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    elif change is None:
        _make_folder(path)
    else:
        path.write_text(change)
    assert main(["rescore", str(run_dir)]) == 2
    error = capsys.readouterr().err
    assert str(path) in error and told in error


def _plan(run_dir: Path) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads((ROOT / "evalharness/formats/examples/plan.json").read_text())
    digest = hashlib.sha256((run_dir / "manifest.json").read_bytes()).hexdigest()
    return {**plan, "scorers": {}, "manifest": {"name": "own", "sha256": digest}}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"scorers": []}, "plan.json: scorers: "),
        ({"scorers": {"gsm8k": 5}}, "plan.json: scorers/gsm8k: "),
        ({"scorers": {"gsm8k": "nope/9"}}, "plan.json: scorers: gsm8k: unknown scorer 'nope/9'"),
        ({"scorers": {"zz": "strict/1"}}, "plan.json: scorers: suite 'zz'"),
        ({"manifest": {"name": "own", "sha256": "0" * 64}}, "manifest.json: digest "),
        ("[" * 100_000, "plan.json: not JSON"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_before_anything_is_scored(
    run_dir: Path, capsys: pytest.CaptureFixture[str], change: Any, told: str
) -> None:
    plan = _plan(run_dir)
    text = change if isinstance(change, str) else json.dumps({**plan, **change})
    (run_dir / "plan.json").write_text(text)
    assert main(["rescore", str(run_dir)]) == 2
    assert told in capsys.readouterr().err
    assert not (run_dir / "scores").exists()
    (run_dir / "plan.json").write_text(json.dumps({**plan, "scorers": {"gsm8k": "numeric/1"}}))
    assert scoring.declared_scorers(run_dir, frozen_manifest(run_dir))["gsm8k"] == "numeric/1"


def test_scores_that_cannot_be_written_are_named(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / "scores").write_text("x")
    assert main(["rescore", str(run_dir)]) == 2
    assert f"{run_dir}/scores/" in capsys.readouterr().err


def test_a_full_disk_keeps_its_exit_code_across_processes(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scoring.cell_jobs(run_dir, {"gsm8k": ["strict/1"]})[0]

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(scoring_cell, "score_line", full)
    answer = scoring_worker.answer_text(run_dir, job)
    with pytest.raises(DiskFullError, match=r"scores/gsm8k.*No space left on device"):
        scoring_worker.answer_of(answer, scoring_worker.job_text(job))
    assert not list(run_dir.rglob("*.partial"))
