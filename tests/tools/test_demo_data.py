"""The demo model's training data: valid, repeatable, and free of the suites' text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from evalharness import data
from tools.demo_model.data import mixture, schemas, tasks, tools

ADAPTER = Path(__file__).resolve().parents[2] / "tools" / "demo_model" / "adapter"
TRAINING = json.loads((ADAPTER / "TRAINING.json").read_text())
# Consecutive words shared with a suite that count as a copy. GPT-3's contamination study takes 13
# (arXiv 2005.14165, appendix C); ten are shared by chance, as in "is the circumference of a circle
# with a radius of".
WORDS = 11
TEXT_SUITES, SCHEMA_SUITES = ("bfcl", "gsm8k"), ("Github_easy", "WashingtonPost")


def grams(text: str) -> set[str]:
    """Every run of WORDS words, in lower case."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {" ".join(words[i : i + WORDS]) for i in range(len(words) - WORDS + 1)}


def shape(schema: Any) -> str:
    return json.dumps(schema, sort_keys=True)


def training_texts(row: dict[str, Any]) -> Iterator[str]:
    """What a row says: its question, its functions' names and descriptions, its answer."""
    yield from (message["content"] for message in row["messages"])
    for tool in row.get("tools", []):
        yield f"{tool['function']['name']} {tool['function']['description']}"


def training_schemas(row: dict[str, Any]) -> Iterator[str]:
    """The schema that a row without tools shows: it is the first JSON in the question."""
    question = row["messages"][0]["content"]
    if "tools" not in row and "{" in question:
        schema, _ = json.JSONDecoder().raw_decode(question, question.index("{"))
        yield shape(schema)


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


@dataclass(slots=True)
class Seen:
    """What the adapter was trained on, as far as it is compared: all rows, each made once."""

    chunks: list[str]
    grams: set[str]
    schemas: set[str]


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Make every row of the committed adapter's training; keep what any suite has as well."""
    here = [name for name in TEXT_SUITES if data.locate(data.KNOWN[name])]
    texts = (text for name in here for row in data.rows(data.KNOWN[name]).values()
             for text in suite_texts(row))  # fmt: skip
    known = {gram for text in texts for gram in grams(text)}
    found = Seen([], set(), set())
    count = TRAINING["rows"]
    for start in range(0, count, mixture.CHUNK):
        digest = hashlib.sha256()
        for index in range(start, min(start + mixture.CHUNK, count)):
            row = mixture.row(Random(f"{TRAINING['seed']}:{index}"))
            digest.update(mixture.line(row))
            found.schemas.update(training_schemas(row))
            for text in training_texts(row):
                found.grams |= grams(text) & known
        found.chunks.append(digest.hexdigest())
    return found


def test_the_rows_are_those_of_the_training(seen: Seen) -> None:
    assert mixture.digest(seen.chunks) == TRAINING["data_sha256"]
    assert len(seen.schemas) > 20_000


@pytest.mark.parametrize("name", TEXT_SUITES)
def test_no_eleven_words_in_a_row_stand_in_a_suite(name: str, seen: Seen) -> None:
    rows = data.rows(needed(name)).values()
    suite = {gram for row in rows for text in suite_texts(row) for gram in grams(text)}
    assert suite, "the suite gave no text to compare with"
    shared = seen.grams & suite
    assert not shared, sorted(shared)[:5]


@pytest.mark.parametrize("name", SCHEMA_SUITES)
def test_no_schema_of_the_suite_is_shown(name: str, seen: Seen) -> None:
    suite = {shape(json.loads(row["json_schema"])) for row in data.rows(needed(name)).values()}
    # The smallest schemas ({"type": "string"}) are nobody's text; anything with members counts.
    assert not [text for text in seen.schemas & suite if '"properties"' in text]


def test_a_copied_question_would_be_found() -> None:
    question = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda"
    row = {"messages": [{"content": f"Please: {question}?"}]}
    assert {gram for text in training_texts(row) for gram in grams(text)} & grams(question)


def test_a_shown_schema_is_read() -> None:
    for index in range(4000):
        row = mixture.row(Random(f"1:{index}"))
        if "JSON" in row["messages"][0]["content"] and "tools" not in row:
            (text,) = training_schemas(row)
            assert set(json.loads(text)) & {"type", "properties", "enum", "const"}, text


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
    assert list(mixture.rows(4, 40)) != first
