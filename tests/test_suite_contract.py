"""What every suite must keep, checked on the material in tests/fixtures/<suite>/contract.jsonl.

One row a case: `row_id`, `row` (as the data source has it), `mode`, `template`, and two bodies of
a reply: `good` (everything the case asks) and `bad` (a reply that must score below it).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalharness.registry import SUITES
from evalharness.scoring_cell import nll_line, score_line
from evalharness.suite import Suite
from evalharness.types import Case, Request, RequestContext, Response, Sampling

FIXTURES = Path(__file__).parent / "fixtures"
by_suite = pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)


def _rows(suite: Suite) -> list[dict[str, Any]]:
    path = FIXTURES / suite.name / "contract.jsonl"
    assert path.exists(), f"suite {suite.name} has no {path}: add a few cases with replies"
    return [json.loads(line) for line in path.read_text().splitlines()]


def _case(suite: Suite, row: dict[str, Any]) -> Case:
    return suite.to_case(row["row_id"], row["row"])


def _request(suite: Suite, row: dict[str, Any], *, seed: int = 11, mode: str = "") -> Request:
    sampling = Sampling(0.0, 1.0, 64)
    context = RequestContext("m", mode or row["mode"], sampling, seed, 0, row["template"])
    return suite.request(_case(suite, row), context)


def _response(request: Request, body: str, **changes: Any) -> Response:
    fields: dict[str, Any] = {
        "case_id": request.case_id,
        "replicate": request.replicate,
        "request_digest": request.digest,
        "endpoint": request.endpoint,
        "request_body": request.body_json,
        "status": "ok",
        "http_code": 200,
        "body": body,
        "body_encoding": "utf-8",
        "error": None,
        "sent_ns": 1,
        "first_byte_ns": 2,
        "done_ns": 3,
        "in_flight": 1,
    }
    return Response(**{**fields, **changes})


def _outcomes(suite: Suite, row: dict[str, Any], body: str, **changes: Any) -> dict[str, str]:
    case, response = _case(suite, row), _response(_request(suite, row), body, **changes)
    found: dict[str, str] = {}
    for name, scorer in suite.scorers.items():
        score = scorer(case, response)
        assert (score.case_id, score.scorer) == (case.case_id, name)
        found[name] = score.outcome
    for name, tokens in suite.token_scorers.items():
        nll = tokens(case, response)
        assert (nll.case_id, nll.scorer) == (case.case_id, name)
        found[name] = nll.outcome
    return found


@by_suite
def test_the_record_is_whole(suite: Suite) -> None:
    scorers = suite.token_scorers if suite.kind == "nll" else suite.scorers
    assert suite.default_scorer in scorers
    assert suite.modes
    for name in (*suite.scorers, *suite.token_scorers):
        bare, _, version = name.partition("/")
        assert bare.isidentifier() and version.isdigit(), name


@by_suite
def test_ids_and_digests_are_unique_and_cases_round_trip(suite: Suite) -> None:
    cases = [_case(suite, row) for row in _rows(suite)]
    assert len(cases) >= 2
    assert len({case.case_id for case in cases}) == len(cases)
    assert len({case.digest for case in cases}) == len(cases)
    for case in cases:
        json.loads(case.prompt)
        json.loads(case.expected)
        assert case.suite == suite.name


@by_suite
def test_a_case_does_not_depend_on_member_order(suite: Suite) -> None:
    for row in _rows(suite):
        reversed_row = dict(reversed(row["row"].items()))
        assert suite.to_case(row["row_id"], reversed_row).digest == _case(suite, row).digest


@by_suite
def test_requests_are_deterministic_and_carry_the_context(suite: Suite) -> None:
    for row in _rows(suite):
        for mode in suite.modes:
            request = _request(suite, row, mode=mode)
            assert request == _request(suite, row, mode=mode)
            assert request.endpoint.startswith("/")
            body = json.loads(request.body_json)
            assert body["model"] == "m"
        assert _request(suite, row).digest != _request(suite, row, seed=12).digest


@by_suite
def test_good_replies_beat_bad_ones(suite: Suite) -> None:
    best = "observed" if suite.kind == "nll" else "correct"
    for row in _rows(suite):
        assert set(_outcomes(suite, row, row["good"]).values()) == {best}, row["row_id"]
        assert best not in _outcomes(suite, row, row["bad"]).values(), row["row_id"]


@by_suite
@pytest.mark.parametrize("body", ["", "null", "{}", "data: [DONE]\n\n", "\x00", '{"choices": 5}'])
def test_a_body_without_a_reply_is_never_right(suite: Suite, body: str) -> None:
    for row in _rows(suite):
        assert set(_outcomes(suite, row, body).values()) == {"unobserved"}


@by_suite
@pytest.mark.parametrize("status", ["http_error", "transport_error", "timeout"])
def test_a_failed_request_is_unobserved_whatever_its_body(suite: Suite, status: str) -> None:
    for row in _rows(suite):
        found = _outcomes(suite, row, row["good"], status=status, http_code=500)
        assert set(found.values()) == {"unobserved"}


@by_suite
def test_scoring_twice_gives_the_same_bytes(suite: Suite) -> None:
    for row in _rows(suite):
        for body in (row["good"], row["bad"], ""):
            lines = [_score_bytes(suite, row, body) for _ in range(2)]
            assert lines[0] == lines[1]
            for line in lines[0]:
                json.loads(line)


def _score_bytes(suite: Suite, row: dict[str, Any], body: str) -> list[bytes]:
    case, response = _case(suite, row), _response(_request(suite, row), body)
    lines = [score_line(scorer(case, response), "0" * 16) for scorer in suite.scorers.values()]
    tokens = suite.token_scorers.values()
    return lines + [nll_line(scorer(case, response), "0" * 16) for scorer in tokens]
