"""Schema cases and requests; the packaged cases can be solved and failed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalharness.data import KNOWN, rows
from evalharness.errors import ManifestError
from evalharness.schema import SUITE
from evalharness.types import RequestContext, Sampling

# A right and a wrong value for each packaged case.
ANSWERS: dict[str, tuple[Any, Any]] = {
    "sc-001": ({"name": "Ada", "age": 36}, {"name": "Ada", "age": "36"}),
    "sc-002": ("green", "Green"),
    "sc-003": ([1, 2, 3], [1, 2]),
    "sc-004": ({"newsletter": False}, {"newsletter": "no"}),
    "sc-005": ({"title": "t", "date": "2026-03-02"}, {"title": "t", "date": "2 March 2026"}),
    "sc-006": ({"width": 4, "height": 2.5}, {"width": 4}),
    "sc-007": ({"host": "192.0.2.7", "port": 8080}, {"host": "192.0.2.777", "port": 8080}),
    "sc-008": ({"email": "mira@example.org"}, {"email": "mira"}),
    "sc-009": ({"items": [{"sku": "pen", "count": 2}]}, {"items": []}),
    "sc-010": ({"ticket": "AB-1234"}, {"ticket": "AB1234"}),
    "sc-011": ({"first": "Ada", "middle": None}, {"first": "Ada"}),
    "sc-012": ("yes", True),
    "sc-013": ({"name": "a", "children": [{"name": "b"}]}, {"name": "a", "children": [{}]}),
    "sc-014": ({"kind": "card", "last4": "4242"}, {"kind": "card"}),
    "sc-015": ({"tags": ["fast", "small"]}, {"tags": ["fast", "fast"]}),
    "sc-016": ({"amount": 12.5, "currency": "EUR"}, {"amount": 12.6, "currency": "EUR"}),
}


def _context(mode: str) -> RequestContext:
    return RequestContext("m", mode, Sampling(0.0, 1.0, 64), 1, 0, "schema/1")


def test_every_packaged_case_tells_right_from_wrong() -> None:
    assert SUITE.score_vector is not None
    packaged = rows(KNOWN["schema_cases"])
    assert sorted(packaged) == sorted(ANSWERS)
    for row_id, row in packaged.items():
        schema = json.loads(row["json_schema"])
        for answer, outcome in zip(ANSWERS[row_id], ("correct", "wrong"), strict=True):
            vector = {"id": row_id, "schema": schema, "output": json.dumps(answer)}
            found = SUITE.score_vector({**vector, "finish_reason": "stop"}, "strict/1")
            assert found["outcome"] == outcome, (row_id, found)


def test_both_modes_ask_in_the_same_words() -> None:
    row = rows(KNOWN["schema_cases"])["sc-001"]
    case = SUITE.to_case("sc-001", row)
    plain = json.loads(SUITE.request(case, _context("prompt")).body_json)
    forced = json.loads(SUITE.request(case, _context("response_format")).body_json)
    schema = forced.pop("response_format")["json_schema"]["schema"]
    assert plain == forced
    assert schema == json.loads(row["json_schema"])
    assert row["json_schema"] in plain["messages"][0]["content"]
    assert row["task"] in plain["messages"][0]["content"]


@pytest.mark.parametrize(
    "row", [{}, {"json_schema": {}}, {"json_schema": "{"}, {"json_schema": "5"}]
)
def test_bad_rows_are_refused(row: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match="schema case x"):
        SUITE.to_case("x", row)
