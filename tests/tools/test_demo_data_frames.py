"""The hand-written functions: whole, truthful about values, and asked for in other words."""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import Any

import pytest

from tools.demo_model.data import frame_calls, tools
from tools.demo_model.data.calls import REFUSALS
from tools.demo_model.data.frames import all_frames, parse, say, show
from tools.demo_model.data.values import value_of

API_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def test_every_sentence_states_every_required_parameter() -> None:
    for frame in all_frames():
        required = {n for n, param in enumerate(frame.params) if param.required}
        assert len(frame.sentences) >= 2 and required, frame.names
        for sentence in frame.sentences:
            stated = {
                piece
                for pieces, optional in sentence
                for piece in pieces
                if isinstance(piece, int) and not optional
            }
            assert required <= stated, (frame.names, sentence)


def test_every_document_can_be_served() -> None:
    rng = Random(1)
    for frame in all_frames():
        for _ in range(5):
            document = show(rng, frame).document
            properties = document["parameters"]["properties"]
            assert API_NAME.fullmatch(document["name"]), document["name"]
            assert len(properties) == len(frame.params), frame.names
            assert set(document["parameters"]["required"]) <= set(properties)


def test_a_group_has_neighbours_to_be_confused_with() -> None:
    sizes = Counter(frame.group for frame in all_frames())
    assert len(sizes) >= 25 and min(sizes.values()) >= 4, sizes


@pytest.mark.parametrize(
    ("text", "message"),
    [("+ f\n> Ask {x}.", "no parameter"), ("+ f\nhello", "no known mark")],
)
def test_a_frame_that_is_wrong_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_the_words_mean_the_value() -> None:
    rng = Random(2)
    minutes, large, share = (value_of(k).make for k in ("conv 9 90 60 hours minutes", "big", "pct"))
    scale = {"hour": 60, "hours": 60, "minutes": 1, "million": 10**6, "thousand": 1000, "": 1}
    for make in (minutes, large):
        for _ in range(200):
            value, said = make(rng)
            number, _, unit = said.replace(",", "").partition(" ")
            assert value == round(float(number) * scale[unit]), said
    for _ in range(100):
        value, said = share(rng)
        assert value == pytest.approx(float(said.removesuffix("%")) / 100)
    with pytest.raises(KeyError):
        value_of("parsec 1 2")


def test_many_questions_share_few_words_with_the_document() -> None:
    rng = Random(3)
    low = total = 0
    for frame in all_frames():
        for _ in range(5):
            shown = show(rng, frame)
            question, _ = say(rng, frame)
            heading = f"{shown.name} {shown.document['description']}"
            known = set(re.findall(r"[a-z]{4,}", heading.lower()))
            asked = set(re.findall(r"[a-z]{4,}", question.lower()))
            low += len(known & asked) <= 1
            total += 1
    assert low / total > 0.4, low / total


def calls_of(row: dict[str, Any]) -> int:
    return str(row["messages"][-1]["content"]).count("<tool_call>")


def test_several_calls_are_several_and_differ() -> None:
    rng = Random(4)
    counts: Counter[int] = Counter()
    for _ in range(600):
        row = frame_calls.parallel(rng)
        answer = row["messages"][-1]["content"]
        texts = re.findall(r"<tool_call>\n(.*)\n</tool_call>", answer)
        assert len(set(texts)) == len(texts)
        counts[len(texts)] += 1
    assert sum(counts[n] for n in (2, 3, 4)) > 0.95 * 600, counts


def test_a_refusal_shows_no_function_that_was_asked_for() -> None:
    rng = Random(5)
    refused = sum(calls_of(frame_calls.irrelevant(rng)) == 0 for _ in range(200))
    assert refused == 200
    rows = [tools.example(rng) for _ in range(4000)]
    share = sum(row["messages"][-1]["content"] in REFUSALS for row in rows) / len(rows)
    # One of seven: with one of ten a call was made where none fits more often than the card's goal
    # allows; far above it, whatever is worded differently would be refused.
    assert share == pytest.approx(1 / 7, abs=0.02)
