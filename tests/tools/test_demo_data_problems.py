"""The word problems: every step is a true equation and the last one gives the answer."""

from __future__ import annotations

import re
from fractions import Fraction
from random import Random

import pytest

from tools.demo_model.data import arithmetic, problems

EVERY = [*problems.TEMPLATES, *arithmetic.TEMPLATES]


def value(text: str) -> Fraction:
    """Value of a chain of additions, or of one of products, from left to right."""
    first, *rest = text.split(" ")
    total = Fraction(first)
    for sign, number in zip(rest[::2], rest[1::2], strict=True):
        right = Fraction(number)
        total = {
            "+": lambda a, b: a + b,
            "-": lambda a, b: a - b,
            "*": lambda a, b: a * b,
            "/": lambda a, b: a / b,
        }[sign](total, right)
    return total


@pytest.mark.parametrize("template", EVERY, ids=lambda template: template.__name__)
def test_the_steps_are_true_and_lead_to_the_answer(template: arithmetic.Template) -> None:
    rng = Random(1)
    questions = set()
    for _ in range(150):
        question, steps, answer = template(rng)
        for line in steps.splitlines():
            left, _, right = line.partition(" = ")
            assert value(left) == value(right), line
        assert value(steps.splitlines()[-1].partition(" = ")[2]) == answer
        assert not re.search(r"[{}]", question), question
        questions.add(question)
    assert len(questions) > 75


def test_the_answer_ends_the_reply() -> None:
    rng = Random(2)
    for _ in range(300):
        _, reply = problems.problem(rng)
        assert re.fullmatch(r"#### -?[0-9]+", reply.splitlines()[-1]), reply
