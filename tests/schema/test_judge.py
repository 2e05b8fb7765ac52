"""The isolated judge: hostile input is bounded and named, checkers are asserted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalharness.child import module_command
from evalharness.errors import ScoreError
from evalharness.schema import SUITE, formats
from evalharness.schema.isolation import JudgeProcess
from tests.test_chat import response
from tools.stored_run import chat_body


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeProcess]:
    with JudgeProcess(cpu_limit_s=0.5) as process:
        yield process


HOSTILE: dict[str, tuple[Any, str, str]] = {
    "catastrophic pattern": ({"pattern": "^(a+)+$"}, '"' + "a" * 60 + '!"', "judge:timeout"),
    "endless reference": ({"$ref": "#"}, "1", "judge:timeout"),
    "million digits": ({"type": "integer"}, "7" * 1_000_000, "judge:timeout"),
    "million brackets": (True, "[" * 1_000_000 + "]" * 1_000_000, "judge:too_deep"),
    "remote reference": ({"$ref": "http://127.0.0.1:1/x"}, "1", "judge:unresolvable_ref"),
    "invalid pattern": ({"pattern": "("}, '"a"', "judge:invalid_pattern"),
    "unknown type": ({"type": "float"}, "1", "judge:UnknownType"),
    "zero divisor": ({"multipleOf": 0}, "1", "judge:ZeroDivisionError"),
    "2000 deep": (True, "[" * 2000 + "]" * 2000, "valid"),
    "2000 deep, each level checked": (
        {"items": {"$ref": "#"}, "maxItems": 1},
        "[" * 2000 + "]" * 2000,
        "valid",
    ),
    "5000 digits": ({"type": "integer"}, "-" + "7" * 5000, "valid"),
    "5000 digits in an error message": ({"type": "null"}, "7" * 5000, "schema:type"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_bounded_and_named(judge: JudgeProcess, name: str) -> None:
    schema, output, tag = HOSTILE[name]
    started_s = time.monotonic()
    assert judge.judge(json.dumps(schema), output, "stop") == tag
    assert time.monotonic() - started_s < 60  # bounded; what it takes depends on the machine
    assert judge.judge("true", "1", "stop") == "valid"  # and the next case has its judge


def test_a_dead_worker_is_replaced(judge: JudgeProcess) -> None:
    assert judge.judge("true", "1", "stop") == "valid"
    process = judge._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert judge.judge("true", "1", "stop") == "valid"


def test_no_verdict_is_unobserved_never_right_or_wrong() -> None:
    assert SUITE.score_vector is not None
    row = {"id": "x", "schema": {"pattern": "("}, "output": '"a"', "finish_reason": "stop"}
    found = SUITE.score_vector(row, "strict/1")
    assert (found["outcome"], found["reason"]) == ("unobserved", "judge:invalid_pattern")
    text = json.dumps(row["schema"])
    case = SUITE.to_case("x", {"json_schema": text})
    score = SUITE.scorers["strict/1"](case, response(chat_body('"a"')))
    assert (score.outcome, score.reason) == ("unobserved", "judge:invalid_pattern")


def test_all_nineteen_formats_refuse_something(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(formats.REQUIRED_FORMATS) == 19
    assert formats.missing_formats() == []
    checkers = dict(formats.Draft202012Validator.FORMAT_CHECKER.checkers)
    del checkers["uuid"]
    checkers["iri"] = (lambda _value: True, ())
    monkeypatch.setattr(formats.Draft202012Validator.FORMAT_CHECKER, "checkers", checkers)
    assert formats.missing_formats() == ["iri", "uuid"]


@pytest.mark.parametrize("package", ["rfc3987", "fqdn", "isoduration"])
def test_a_missing_checker_refuses_to_score(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is started where the package cannot be imported."""
    (tmp_path / f"{package}.py").write_text("raise ImportError('not installed')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with JudgeProcess() as process, pytest.raises(ScoreError, match=r"jsonschema\[format\]"):
        process.judge("true", "1", "stop")


def test_a_worker_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with JudgeProcess() as process, pytest.raises(ScoreError, match="did not start"):
        process.judge("true", "1", "stop")


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)
_SCHEMAS = st.booleans() | st.dictionaries(
    st.sampled_from(
        ["type", "items", "properties", "required", "$schema", "pattern", "enum", "anyOf", "not"]
    ),
    _JSON,
    max_size=3,
)


@settings(deadline=None, max_examples=60)
@given(schema=_SCHEMAS, value=_JSON, text=st.text(max_size=6))
def test_any_schema_and_text_gives_an_outcome(
    judge: JudgeProcess, schema: Any, value: Any, text: str
) -> None:
    for output in (json.dumps(value), text):
        tag = judge.judge(json.dumps(schema), output, "stop")
        assert tag == "valid" or tag.partition(":")[0] in ("json", "schema", "judge")
        assert not tag.startswith("judge:crashed"), tag


@given(_JSON)
def test_an_oracle_beats_its_corruption(value: Any) -> None:
    """`const` of a value admits its own text, and nothing that was cut, doubled or wrapped."""
    assert SUITE.score_vector is not None
    text = json.dumps(value)

    def outcome(output: str) -> Any:
        row = {"id": 1, "schema": {"const": value}, "output": output, "finish_reason": "stop"}
        assert SUITE.score_vector is not None
        return SUITE.score_vector(row, "strict/1")["outcome"]

    assert outcome(text) == "correct"
    for corrupted in (f"```json\n{text}\n```", f"{text} {text}", f"[{text}", f"{text},", "NaN"):
        assert outcome(corrupted) == "wrong"


@given(st.dictionaries(st.text(max_size=3), st.integers(), min_size=2), st.randoms())
def test_member_order_changes_no_verdict(value: dict[str, int], rng: Any) -> None:
    assert SUITE.score_vector is not None
    keys = list(value)
    rng.shuffle(keys)
    other = {key: value[key] for key in keys}
    for output in (json.dumps(value), json.dumps(other)):
        row = {"id": 1, "schema": {"const": value}, "output": output, "finish_reason": "stop"}
        assert SUITE.score_vector(row, "strict/1")["outcome"] == "correct"


def test_a_judge_whose_parent_is_gone_ends_quietly() -> None:
    argv, env = module_command("evalharness.schema.worker")
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    assert process.stdout is not None and process.stdin is not None
    process.stdout.close()
    process.stdin.write(b'["{}", "1", "stop", 1.0]\n')
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr is not None and process.stderr.read() == b""
    process.stderr.close()
