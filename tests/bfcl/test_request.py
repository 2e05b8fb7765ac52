"""BFCL requests: the tools API's types and names, the document's order."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from evalharness.bfcl import SUITE
from evalharness.bfcl.cases import CATEGORIES
from evalharness.bfcl.request import json_schema
from evalharness.data import BFCL_CATEGORIES
from evalharness.errors import ManifestError
from evalharness.types import Sampling
from tests.bfcl.items import CONTEXT, cases, rows


def test_the_wheel_s_categories_are_the_suite_s() -> None:
    assert BFCL_CATEGORIES == CATEGORIES


def test_tools_have_json_types_and_legal_names() -> None:
    case = next(case for case in cases() if case.case_id == "multiple_w1")
    body = json.loads(SUITE.request(case, CONTEXT).body_json)
    functions = [tool["function"] for tool in body["tools"]]
    assert [function["name"] for function in functions] == [
        "weather_get",
        "math_mean",
        "order_place",
    ]
    assert functions[1]["parameters"]["properties"]["numbers"]["items"] == {"type": "number"}
    assert functions[2]["parameters"]["type"] == "object"
    assert functions[2]["parameters"]["properties"]["items"]["items"]["type"] == "object"
    assert (body["seed"], body["temperature"], body["max_tokens"]) == (7, 0.0, 64)
    assert body["stream"] is False


def test_a_parameter_called_type_or_properties_stays_one() -> None:
    schema = {
        "type": "dict",
        "properties": {"type": {"type": "any"}, "properties": {"type": "tuple", "items": {}}},
        "default": {"type": "dict"},
    }
    converted = json_schema(schema)
    assert converted["properties"]["type"] == {"type": "string"}
    assert converted["properties"]["properties"] == {"type": "array", "items": {}}
    assert converted["default"] == {"type": "dict"}


def test_the_documents_order_reaches_the_model() -> None:
    row = dict(rows()[0])
    document = json.loads(json.dumps(row["function"][0]))
    properties = document["parameters"]["properties"]
    document["parameters"]["properties"] = dict(reversed(properties.items()))
    other = SUITE.to_case(row["id"], {**row, "function": [document]})
    case = SUITE.to_case(row["id"], row)
    assert case.digest != other.digest
    assert SUITE.request(case, CONTEXT).body_json != SUITE.request(other, CONTEXT).body_json


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "prompt"},
        {"template": "bfcl/0"},
        {"sampling": Sampling(0.0, 1.0, 8, '{"seed":1}')},
    ],
)
def test_what_no_manifest_may_ask(change: dict[str, object]) -> None:
    with pytest.raises(ManifestError):
        SUITE.request(cases()[0], replace(CONTEXT, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row_id", "change"),
    [
        ("simple_java_1", {}),
        ("simple_python_1", {"question": []}),
        ("simple_python_1", {"function": None}),
        ("simple_python_1", {"ground_truth": None}),
        ("irrelevance_1", {}),
    ],
)
def test_bad_rows_are_refused(row_id: str, change: dict[str, object]) -> None:
    with pytest.raises(ManifestError, match=row_id):
        SUITE.to_case(row_id, {**rows()[0], **change})
