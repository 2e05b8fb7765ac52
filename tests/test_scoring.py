"""Stored responses to scores: offline, beside the old ones, the same bytes every time."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from evalharness import scoring, scoring_cell
from evalharness.bfcl import SUITE as BFCL
from evalharness.cli.main import main
from evalharness.errors import ScoreError
from evalharness.manifest import Manifest, load_manifest, parse_manifest
from evalharness.manifest_build import manifest_text
from evalharness.scoring import score_run, score_with
from evalharness.store.lines import encode_line
from evalharness.types import Case, CellKey
from tests.bfcl.items import cases as bfcl_cases
from tools.stored_run import bfcl_oracle, chat_body, make_response, write_cell, write_run

ROOT = Path(__file__).parent.parent


def _greedy_case() -> Case:
    parameters = {"type": "dict", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    row: dict[str, Any] = {
        "id": "parallel_greedy",
        "question": [[{"role": "user", "content": "?"}]],
        "function": [{"name": "f", "description": "f", "parameters": parameters}],
        "ground_truth": [{"f": {"x": [1, 2]}}, {"f": {"x": [1]}}],
    }
    return BFCL.to_case(row["id"], row)


def own_manifest() -> tuple[Manifest, dict[str, tuple[Case, ...]]]:
    """Return BFCL's own items, one greedy case, and the packaged smoke cases."""
    from evalharness.manifest import load_cases

    smoke = load_manifest(ROOT / "manifests" / "smoke.json")
    cases = {**load_cases(smoke), "bfcl": (*bfcl_cases(), _greedy_case())}
    suites = json.loads(smoke.text)["suites"]
    suites["bfcl"] = {
        "source": {"kind": "jsonl", "id": "items", "revision": "1"},
        "modes": ["tools"],
        "template": "bfcl/1",
        "sampling": {"temperature": 0.0, "top_p": 1.0, "max_tokens": 64},
        "cases": [{"id": case.case_id, "sha256": case.digest} for case in cases["bfcl"]],
    }
    return parse_manifest(manifest_text("own", suites), "own"), cases


def _bfcl_reply(case: Case) -> str:
    if case.case_id == "parallel_greedy":
        calls = [("f", '{"x": 1}'), ("f", '{"x": 2}')]
        return chat_body(None, calls=calls, finish_reason="tool_calls")
    if case.case_id == "irrelevance_w1":
        return chat_body(None, calls=[("math_mean", '{"x": ')], finish_reason="tool_calls")
    return bfcl_oracle(case)


def _gsm8k_reply(case: Case) -> str:
    return chat_body(f"It makes ${json.loads(case.expected)['gold']}.00 in all")


REPLIES = {
    "bfcl": _bfcl_reply,
    "gsm8k": _gsm8k_reply,
    "schema": lambda _case: chat_body('{"name": "Ada", "age": 36}'),
}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    manifest, cases = own_manifest()
    write_run(
        tmp_path, manifest, cases, replies=REPLIES, arms=("control", "on"), concurrency=(1, 4)
    )
    return tmp_path


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _scores(run_dir: Path, name: str) -> list[dict[str, Any]]:
    path = run_dir / "scores" / name
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_scores_lie_where_and_look_as_the_format_says(run_dir: Path) -> None:
    summary = score_run(run_dir)
    assert (summary.cells, summary.faults, summary.differing) == (12, [], [])
    names = sorted(path.name for path in (run_dir / "scores").iterdir())
    assert names == ["bfcl.official-1", "gsm8k.strict-1", "schema.strict-1"]
    rows = _scores(run_dir, "bfcl.official-1/on/001/bfcl.tools-c4-r0.jsonl")
    format_file = ROOT / "evalharness" / "formats" / "score.schema.json"
    checker = jsonschema.Draft202012Validator(json.loads(format_file.read_text()))
    responses = run_dir / "responses" / "on" / "001" / "bfcl.tools-c4-r0.jsonl"
    checks = [json.loads(line)["check"] for line in responses.read_text().splitlines()]
    for row in rows:
        checker.validate(row)
    assert [row["response_digest"] for row in rows] == checks
    outcomes = {row["case_id"]: row["outcome"] for row in rows}
    assert outcomes.pop("parallel_greedy") == "wrong"
    assert set(outcomes.values()) == {"correct"}


def test_scoring_again_does_nothing_and_rescoring_gives_the_same_bytes(run_dir: Path) -> None:
    score_run(run_dir)
    before = _digests(run_dir)
    assert score_run(run_dir).cells == 0
    again = score_run(run_dir, recheck=True)
    assert (len(again.unchanged), again.written) == (12, [])
    assert _digests(run_dir) == before


def test_rescore_prints_each_changed_verdict_with_its_rule(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    score_run(run_dir)
    before = _digests(run_dir)
    assert main(["rescore", str(run_dir), "--scorer", "corrected"]) == 0
    *changes, summary = capsys.readouterr().out.splitlines()
    assert len(changes) == 8  # two cases in each of four cells
    assert (
        "control/001/bfcl.tools-c1-r0 parallel_greedy: official/1 wrong "
        "(parallel_function_checker_no_order:cannot_find_match) -> corrected/1 correct (valid)  "
        "[C1: parallel calls are matched perfectly, not first fit]"
    ) in changes
    assert any("irrelevance_w1: official/1 correct (valid)" in line for line in changes)
    assert "4 score files written" in summary
    after = _digests(run_dir)
    assert {name: after[name] for name in before} == before
    assert main(["rescore", str(run_dir), "--scorer", "corrected"]) == 0
    assert _digests(run_dir) == after


def test_without_a_scorer_every_version_is_scored(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rescore", str(run_dir)]) == 0
    names = sorted(path.name for path in (run_dir / "scores").iterdir())
    assert names == [
        "bfcl.corrected-1",
        "bfcl.official-1",
        "gsm8k.flexible-1",
        "gsm8k.numeric-1",
        "gsm8k.strict-1",
        "schema.strict-1",
    ]
    assert "wp-001: strict/1 wrong (format_only) -> numeric/1 correct" in capsys.readouterr().out


def test_a_score_that_is_no_longer_reproduced_is_kept_and_named(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    score_run(run_dir)
    path = run_dir / "scores/gsm8k.strict-1/on/001/gsm8k.chat-c1-r0.jsonl"
    altered = path.read_bytes().replace(b'"wrong"', b'"correct"')
    path.write_bytes(altered)
    assert main(["rescore", str(run_dir), "--scorer", "gsm8k=strict"]) == 12
    assert f"{path} line 1: stored scores differ" in capsys.readouterr().err
    assert path.read_bytes() == altered
    assert not list(run_dir.rglob("*.partial"))


def test_transport_errors_stay_unobserved_in_every_version(tmp_path: Path) -> None:
    manifest, cases = own_manifest()
    write_run(tmp_path, manifest, cases, replies={})
    entry = manifest.entries["bfcl"]
    failed = {"status": "timeout", "http_code": None, "usage": None, "finish_reason": None}
    lines = [
        encode_line(make_response(entry, case, "", mode="tools", **failed))
        for case in cases["bfcl"]
    ]
    write_cell(tmp_path, CellKey("control", "bfcl", "tools", 1, 0), lines)
    score_with(tmp_path, {"bfcl": ["official/1", "corrected/1"]})
    for version in ("official-1", "corrected-1"):
        rows = _scores(tmp_path, f"bfcl.{version}/control/001/bfcl.tools-c1-r0.jsonl")
        assert [row["outcome"] for row in rows] == ["unobserved"] * len(cases["bfcl"])
        assert rows[0]["detail"]["output_tokens"] is None


def test_only_complete_cells_are_scored(run_dir: Path) -> None:
    record = run_dir / "responses/on/001/bfcl.tools-c1-r0.cell.json"
    record.write_text(record.read_text().replace('"complete"', '"incomplete"'))
    assert score_run(run_dir).cells == 11


def test_unknown_scorers_and_entries_are_refused(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ScoreError, match="official/1, corrected/1"):
        score_run(run_dir, scorers={"bfcl": "strict/1"})
    with pytest.raises(ScoreError, match="not in this run"):
        score_run(run_dir, scorers={"nll": "raw/1"})
    assert main(["rescore", str(run_dir), "--scorer", "nope"]) == 2
    assert main(["rescore", str(run_dir), "--scorer", "nll=raw"]) == 2
    assert main(["rescore", str(run_dir / "nowhere")]) == 2
    assert "manifest.json" in capsys.readouterr().err


def test_processes_give_the_same_files_as_one(
    run_dir: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[str] = []
    wanted = {"bfcl": ["official/1", "corrected/1"], "gsm8k": ["strict/1"], "schema": ["strict/1"]}
    score_with(run_dir, wanted, on_change=lambda change: changes.append(str(change)))
    other = tmp_path_factory.mktemp("other")
    manifest, cases = own_manifest()
    write_run(other, manifest, cases, replies=REPLIES, arms=("control", "on"), concurrency=(1, 4))
    monkeypatch.setattr(scoring, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(scoring.os, "sched_getaffinity", lambda _pid: {0, 1})
    parallel: list[str] = []
    score_with(other, wanted, on_change=lambda change: parallel.append(str(change)))
    assert parallel == changes
    assert _digests(other) == _digests(run_dir)


OFFLINE = """
import sys
def refuse(event, args):
    if event.startswith("socket.") and event != "socket.gethostname":
        raise SystemExit(f"network used: {event} {args}")
sys.addaudithook(refuse)
from evalharness.cli.main import main
code = main(["rescore", sys.argv[1]])
bad = [name for name in ("aiohttp", "torch", "vllm", "datasets") if name in sys.modules]
sys.exit(f"imported {bad}" if bad else code)
"""


def test_rescoring_needs_neither_network_nor_http_library(run_dir: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, str(run_dir)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_scored_line_is_canonical_and_complete() -> None:
    """The line is put together by hand for speed: it must be what json would write."""
    manifest, cases = own_manifest()
    entry = manifest.entries["bfcl"]
    case = replace(cases["bfcl"][0], case_id='quote " and \u00e9')
    score = BFCL.scorers["official/1"](case, make_response(entry, case, "{}", mode="tools"))
    row = json.loads(scoring_cell.score_line(score, "0" * 16))
    assert row["case_id"] == case.case_id
    assert row["detail"] == json.loads(score.detail)
