"""The demo model's training data: valid, repeatable, and free of the suites' text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from evalharness import data
from tools.demo_model.data import mixture, schemas, tasks, tools

ROWS = 8000
SEED = 20261129  # the committed adapter's
WORDS = 10  # consecutive words shared with a suite that count as a copy


def grams(text: str) -> set[str]:
    """Every run of WORDS words, in lower case."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {" ".join(words[i : i + WORDS]) for i in range(len(words) - WORDS + 1)}


@lru_cache(maxsize=1)
def training_rows() -> tuple[dict[str, Any], ...]:
    return tuple(mixture.rows(SEED, ROWS))


def training_texts() -> Iterator[str]:
    """What a row says: its question, its functions' names and descriptions, its answer."""
    for row in training_rows():
        functions = [tool["function"] for tool in row.get("tools", [])]
        said = [message["content"] for message in row["messages"]]
        said += [f"{f['name']} {f['description']}" for f in functions]
        yield from said


def suite_texts(row: data.Row) -> Iterator[str]:
    if "question" in row and isinstance(row["question"], str):
        yield row["question"]
        return
    for turn in row["question"]:
        yield from (message["content"] for message in turn)
    for function in row["function"]:
        yield f"{function['name']} {function['description']}"


def needed(name: str) -> data.Source:
    source = data.KNOWN[name]
    if data.locate(source) is None:
        pytest.skip(f"no {name} data here: run `evalharness data fetch`, or set EVALHARNESS_DATA")
    return source


@pytest.mark.parametrize("name", ["bfcl", "gsm8k"])
def test_no_ten_words_in_a_row_stand_in_a_suite(name: str) -> None:
    suite: set[str] = set()
    for row in data.rows(needed(name)).values():
        for text in suite_texts(row):
            suite |= grams(text)
    assert suite, "the suite gave no text to compare with"
    shared = {gram for text in training_texts() for gram in grams(text) & suite}
    assert not shared, sorted(shared)[:5]


@pytest.mark.parametrize("name", ["Github_easy", "WashingtonPost"])
def test_no_schema_of_the_suite_is_made(name: str) -> None:
    def shape(schema: Any) -> str:
        return json.dumps(schema, sort_keys=True)

    suite = {shape(json.loads(row["json_schema"])) for row in data.rows(needed(name)).values()}
    made = (json.loads(schemas.document(Random(f"{SEED}:{i}"))[0]) for i in range(ROWS))
    # The smallest schemas ({"type": "string"}) are nobody's text; anything with members counts.
    assert not [text for text in map(shape, made) if text in suite and '"properties"' in text]


def test_a_copied_question_would_be_found() -> None:
    question = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda"
    assert grams(f"Please: {question}?") & grams(question)


def test_every_schema_answer_is_valid() -> None:
    rng = Random(5)
    for _ in range(1500):
        schema_text, value_text = schemas.document(rng)
        schema = json.loads(schema_text)
        validator = validator_for(schema, default=Draft202012Validator)
        checker = Draft202012Validator.FORMAT_CHECKER
        validator(schema, format_checker=checker).validate(json.loads(value_text))


def test_every_task_is_stated_in_valid_json() -> None:
    rng = Random(7)
    for _ in range(500):
        task, schema_text, value_text = tasks.document(rng)
        Draft202012Validator(json.loads(schema_text)).validate(json.loads(value_text))
        assert "{" not in task, task


def test_every_call_fits_its_function() -> None:
    rng = Random(6)
    calls = 0
    for _ in range(3000):
        row = tools.example(rng)
        documents = {tool["function"]["name"]: tool["function"] for tool in row["tools"]}
        answer = row["messages"][-1]["content"]
        for text in re.findall(r"<tool_call>\n(.*)\n</tool_call>", answer):
            call = json.loads(text)
            parameters = documents[call["name"]]["parameters"]
            Draft202012Validator(parameters).validate(call["arguments"])
            calls += 1
    assert calls > 2000


def test_a_row_depends_on_its_seed_and_number_alone() -> None:
    first, again = list(mixture.rows(3, 40)), list(mixture.rows(3, 40))
    assert first == again
    assert list(mixture.rows(3, 20)) == first[:20]
    assert mixture.digest(3, 40) != mixture.digest(4, 40)
