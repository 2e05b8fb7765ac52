"""Short word problems with worked steps and a last line `#### answer`; the steps are equations."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tools.demo_model.data import arithmetic
from tools.demo_model.data import words as w

Problem = tuple[str, str, int]
THINGS = (
    "apples",
    "marbles",
    "stickers",
    "pencils",
    "cookies",
    "books",
    "cards",
    "shells",
    "coins",
    "stamps",
    "eggs",
    "toys",
    "oranges",
    "muffins",
)
PLACES = (
    "market",
    "library",
    "school",
    "garden",
    "bakery",
    "farm",
    "museum",
    "toy shop",
    "beach",
    "park",
)


def _two(rng: Random) -> tuple[str, str]:
    first, second = rng.sample(w.FIRST, 2)
    return first, second


def add_sub(rng: Random) -> Problem:
    """Start, gain, lose."""
    name, other = _two(rng)
    thing, a, b = rng.choice(THINGS), rng.randint(5, 90), rng.randint(3, 60)
    c = rng.randint(1, a + b - 1)
    question = f"{name} has {a} {thing}. {name} gets {b} more {thing} at the {rng.choice(PLACES)} and gives {c} to {other}. How many {thing} does {name} have left?"
    steps = f"{a} + {b} = {a + b}\n{a + b} - {c} = {a + b - c}"
    return question, steps, a + b - c


def groups(rng: Random) -> Problem:
    """Boxes times items, and some more."""
    name, _ = _two(rng)
    thing, boxes, each, extra = (
        rng.choice(THINGS),
        rng.randint(2, 15),
        rng.randint(2, 20),
        rng.randint(1, 30),
    )
    question = f"{name} buys {boxes} boxes with {each} {thing} in each box, and {extra} more {thing}. How many {thing} does {name} have in total?"
    steps = f"{boxes} * {each} = {boxes * each}\n{boxes * each} + {extra} = {boxes * each + extra}"
    return question, steps, boxes * each + extra


def cost(rng: Random) -> Problem:
    """Prices, quantities and change."""
    name, _ = _two(rng)
    x, y = rng.sample(THINGS, 2)
    n, p, m, q = rng.randint(2, 9), rng.randint(1, 12), rng.randint(2, 9), rng.randint(1, 12)
    total = n * p + m * q
    paid = total + rng.randint(1, 40)
    question = f"{name} buys {n} {x} for ${p} each and {m} {y} for ${q} each. {name} pays with ${paid}. How much change does {name} get?"
    steps = f"{n} * {p} = {n * p}\n{m} * {q} = {m * q}\n{n * p} + {m * q} = {total}\n{paid} - {total} = {paid - total}"
    return question, steps, paid - total


def share(rng: Random) -> Problem:
    """Equal shares after some are eaten."""
    name, _ = _two(rng)
    thing, people, each, gone = (
        rng.choice(THINGS),
        rng.randint(2, 9),
        rng.randint(2, 15),
        rng.randint(1, 20),
    )
    total = people * each + gone
    question = f"{name} has {total} {thing}. {gone} of them are lost, and the rest are shared equally among {people} friends. How many {thing} does each friend get?"
    steps = f"{total} - {gone} = {people * each}\n{people * each} / {people} = {each}"
    return question, steps, each


def rate(rng: Random) -> Problem:
    """Work per day over days and weeks."""
    name, _ = _two(rng)
    per, days, weeks = rng.randint(2, 15), rng.randint(2, 7), rng.randint(2, 9)
    verb = rng.choice(
        (
            "reads {n} pages",
            "runs {n} miles",
            "earns {n} dollars",
            "plants {n} trees",
            "writes {n} lines",
        )
    )
    unit = verb.split()[-1]
    question = f"{name} {verb.format(n=per)} a day on {days} days of each week. How many {unit} is that in {weeks} weeks?"
    steps = f"{per} * {days} = {per * days}\n{per * days} * {weeks} = {per * days * weeks}"
    return question, steps, per * days * weeks


def times(rng: Random) -> Problem:
    """Twice as many, and together."""
    name, other = _two(rng)
    thing, a, k = rng.choice(THINGS), rng.randint(3, 40), rng.randint(2, 5)
    word = {2: "twice", 3: "three times", 4: "four times", 5: "five times"}[k]
    question = f"{name} has {a} {thing}. {other} has {word} as many {thing} as {name}. How many {thing} do they have together?"
    steps = f"{k} * {a} = {k * a}\n{a} + {k * a} = {a + k * a}"
    return question, steps, a + k * a


def half(rng: Random) -> Problem:
    """A half or a third is sold."""
    name, _ = _two(rng)
    thing, k, each = rng.choice(THINGS), rng.choice((2, 3, 4)), rng.randint(3, 30)
    word = {2: "half", 3: "a third", 4: "a quarter"}[k]
    price = rng.randint(2, 9)
    question = f"{name} picks {k * each} {thing} and sells {word} of them for ${price} each. How many dollars does {name} earn?"
    steps = f"{k * each} / {k} = {each}\n{each} * {price} = {each * price}"
    return question, steps, each * price


TEMPLATES: tuple[Callable[[Random], Problem], ...] = (
    add_sub,
    groups,
    cost,
    share,
    rate,
    times,
    half,
)


def problem(rng: Random) -> tuple[str, str]:
    """Return a question and an answer that ends with `#### n`."""
    bank = arithmetic.TEMPLATES if rng.random() < 0.75 else TEMPLATES
    question, steps, answer = rng.choice(bank)(rng)
    return question, f"{steps}\n#### {answer}"
