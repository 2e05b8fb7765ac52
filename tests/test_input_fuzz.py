"""Whatever stands in a manifest or a vector file: an error of ours, or a row; never a traceback."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalharness.errors import HarnessError, ManifestError
from evalharness.manifest import parse_manifest
from evalharness.registry import suite_named
from evalharness.vectors import verdict_line

ROOT = Path(__file__).parent.parent
# EVALHARNESS_FUZZ multiplies the inputs for the long, documented run.
EXAMPLES = 150 * int(os.environ.get("EVALHARNESS_FUZZ", "1"))
SMOKE = json.loads((ROOT / "manifests" / "smoke.json").read_text())

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


def _paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [prefix] if prefix else []
    if isinstance(value, dict):
        for key in value:
            found += _paths(value[key], (*prefix, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            found += _paths(value[index], (*prefix, index))
    return found


def _put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    document = copy.deepcopy(document)
    target = document
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    return document


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(_paths(SMOKE)), VALUES)
def test_any_value_anywhere_in_a_manifest(path: tuple[Any, ...], value: Any) -> None:
    try:
        parse_manifest(json.dumps(_put(SMOKE, path, value)), "m.json")
    except ManifestError as error:
        assert len(str(error)) > 20


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text() | VALUES.map(json.dumps))
def test_any_text_as_a_manifest(text: str) -> None:
    with pytest.raises(ManifestError, match=r"m\.json"):
        parse_manifest(text, "m.json")


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a" * 65, "\ud800", "a b"])
def test_an_entry_s_name_cannot_leave_the_run(name: str) -> None:
    document = {**SMOKE, "suites": {name: SMOKE["suites"]["gsm8k"]}}
    with pytest.raises(ManifestError, match="file name"):
        parse_manifest(json.dumps(document), "m.json")


@pytest.mark.parametrize(
    "extra", ['{"a":NaN}', '{"a":1,"a":2}', '{"a":' + "9" * 5000 + "}", '{"a":' + "[" * 3000]
)
def test_what_canonical_json_cannot_hold(extra: str) -> None:
    text = json.dumps(SMOKE).replace('"extra": {}', f'"extra": {extra}', 1)
    with pytest.raises(ManifestError, match=r"m\.json"):
        parse_manifest(text, "m.json")


def _judged(suite_name: str, line: bytes) -> None:
    suite = suite_named(suite_name)
    assert suite.score_vector is not None
    verdict, text, fault = verdict_line(line, suite.score_vector, suite.default_scorer)
    assert verdict["outcome"] in ("correct", "wrong", "unobserved")
    assert json.loads(text)["outcome"] == verdict["outcome"]
    assert text.endswith("\n") and text.count("\n") == 1
    assert not fault or verdict["outcome"] == "unobserved"


FIELDS = st.sampled_from(
    ["id", "category", "functions", "gold", "calls", "output", "finish_reason", "content"]
)
CATEGORIES = st.sampled_from(["simple_python", "multiple", "parallel", "irrelevance"])


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.dictionaries(FIELDS, VALUES), CATEGORIES, st.sampled_from(["bfcl", "gsm8k"]))
def test_any_vector_row(row: dict[str, Any], category: str, suite: str) -> None:
    _judged(suite, json.dumps({**row, "category": category}).encode())
    _judged(suite, json.dumps(row).encode())


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(), st.sampled_from(["bfcl", "schema", "gsm8k"]))
def test_any_bytes_as_a_row(line: bytes, suite: str) -> None:
    _judged(suite, line)


@pytest.mark.parametrize(
    "row_id", ["9" * 5000, "NaN", '"\\ud800"', "[" * 5000 + "]" * 5000, '{"a":1}', "-" + "9" * 5000]
)
def test_any_id(row_id: str) -> None:
    for suite in ("bfcl", "gsm8k"):
        _judged(suite, f'{{"id":{row_id},"gold":"1","output":"1"}}'.encode())


def test_errors_of_ours_are_one_family() -> None:
    assert issubclass(ManifestError, HarnessError)
