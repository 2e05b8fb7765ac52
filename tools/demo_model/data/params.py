"""Parameter kinds: how a parameter is named and described, what values it takes, how a user says it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tools.demo_model.data import names
from tools.demo_model.data import words as w

Make = Callable[[Random], tuple[Any, str]]  # a value, and the words a user says for it


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of parameter."""

    names: tuple[str, ...]
    json_type: str
    descriptions: tuple[str, ...]
    make: Make
    mentions: tuple[str, ...]
    items: str | None = None
    enum: tuple[str, ...] = ()


NUMBER_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


def pick(bank: tuple[str, ...], *, closed: bool = False) -> Make:
    """Return a maker of one word of the bank, said as it is.

    Of proper names a quarter are invented ones instead, unless the bank is all there is.
    """
    named = not closed and bank not in (w.WEEKDAYS, w.MONTHS) and names.are_open(bank)

    def make(rng: Random) -> tuple[Any, str]:
        value = names.proper(rng) if named and rng.random() < 0.25 else rng.choice(bank)
        return value, value

    return make


def integer(low: int, high: int, *, money: bool = False) -> Make:
    """Return a maker of an integer, said in digits, with commas, or in words when small."""

    def make(rng: Random) -> tuple[Any, str]:
        value = rng.randint(low, high)
        if high > 1000 and rng.random() < 0.5:
            value = round(value, -2)
        said = str(value)
        if value >= 1000 and rng.random() < 0.5:
            said = f"{value:,}"
        if 0 <= value <= 12 and rng.random() < 0.3:
            said = NUMBER_WORDS[value]
        if money and rng.random() < 0.7:
            said = "$" + (said if said[0].isdigit() else str(value))
        return value, said

    return make


def year(low: int, high: int) -> Make:
    """Return a maker of a year: never rounded, never with a comma."""

    def make(rng: Random) -> tuple[Any, str]:
        value = rng.randint(low, high)
        return value, str(value)

    return make


def decimal(low: float, high: float, places: int = 1) -> Make:
    """Return a maker of a float, said in digits; a whole one may be said without a point."""

    def make(rng: Random) -> tuple[Any, str]:
        value = round(rng.uniform(low, high), places)
        if rng.random() < 0.35:
            whole = int(value)
            return float(whole) if rng.random() < 0.5 else whole, str(whole)
        return value, str(value)

    return make


def percent(rng: Random) -> tuple[Any, str]:
    """A rate that a user says in percent and the function wants as a share."""
    tenths = rng.randint(5, 150)
    said = f"{tenths / 10:g}%"
    return tenths / 1000, said


def date(rng: Random) -> tuple[Any, str]:
    """A day, wanted as YYYY-MM-DD."""
    year, month, day = rng.randint(1990, 2026), rng.randint(1, 12), rng.randint(1, 28)
    iso = f"{year}-{month:02d}-{day:02d}"
    ordinal = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(day, "th")
    name = w.MONTHS[month - 1]
    said = rng.choice(
        [iso, f"{name} {day}, {year}", f"{name} {day}{ordinal} {year}", f"{day} {name} {year}"]
    )
    return iso, said


def clock(rng: Random) -> tuple[Any, str]:
    """A time of day, wanted as HH:MM in 24 hours."""
    hour, minute = rng.randint(0, 23), rng.choice([0, 0, 15, 30, 45])
    if rng.random() < 0.5:
        return f"{hour:02d}:{minute:02d}", f"{hour:02d}:{minute:02d}"
    half = "AM" if hour < 12 else "PM"
    shown = hour % 12 or 12
    return (
        f"{hour:02d}:{minute:02d}",
        f"{shown}:{minute:02d} {half}" if minute else f"{shown} {half}",
    )


def person(rng: Random) -> tuple[Any, str]:
    """A full name, or a first name."""
    name = rng.choice(w.FIRST)
    if rng.random() < 0.7:
        name += " " + (rng.choice(w.LAST) if rng.random() < 0.7 else names.word(rng))
    return name, name


def city_state(rng: Random) -> tuple[Any, str]:
    """A place as City, ST."""
    name = f"{rng.choice(w.CITIES)}, {rng.choice(w.STATE_CODES)}"
    return name, name


def code(rng: Random) -> tuple[Any, str]:
    """An identifier such as AB1234."""
    letters = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(rng.randint(0, 3)))
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(3, 6)))
    return letters + digits, letters + digits


def listing(make_one: Make, low: int = 2, high: int = 4) -> Make:
    """Return a maker of a list, said with commas and 'and' or in brackets."""

    def make(rng: Random) -> tuple[Any, str]:
        made = [make_one(rng) for _ in range(rng.randint(low, high))]
        said = [word for _, word in made]
        if rng.random() < 0.35:
            return [v for v, _ in made], "[" + ", ".join(said) + "]"
        return [v for v, _ in made], ", ".join(said[:-1]) + " and " + said[-1]

    return make


def float_numbers(low: int, high: int, size: tuple[int, int] = (2, 6)) -> Make:
    """Return a maker of a list of floats, often said without a point: [12, 15] is [12.0, 15.0]."""

    def one(rng: Random) -> tuple[Any, str]:
        if rng.random() < 0.6:
            whole = rng.randint(low, high)
            return float(whole), str(whole)
        value = round(rng.uniform(low, high), 1)
        return value, str(value)

    return listing(one, *size)


def plain_numbers(low: int, high: int, size: tuple[int, int] = (2, 6)) -> Make:
    """Return a maker of a list of integers in digits."""

    def one(rng: Random) -> tuple[Any, str]:
        value = rng.randint(low, high)
        return value, str(value)

    return listing(one, *size)


def flag(rng: Random) -> tuple[Any, str]:
    """A boolean; the mention says it in words."""
    value = rng.random() < 0.75
    return value, ""


def N(
    called: str, low: float, high: float, unit: str, *, kind: str = "integer", places: int = 1
) -> Kind:
    """A measured quantity named by its noun."""
    noun = tuple(called.split("/"))
    make = integer(int(low), int(high)) if kind == "integer" else decimal(low, high, places)
    human = noun[0].replace("_", " ")
    return Kind(
        noun,
        kind,
        (
            f"The {human} in {unit}." if unit else f"The {human}.",
            f"{human.capitalize()}" + (f", in {unit}" if unit else "") + ".",
            f"The value of the {human}.",
        ),
        make,
        tuple(
            text.format(h=human, u=f" {unit}" if unit else "", v="{v}")
            for text in (
                "with a {h} of {v}{u}",
                "with {h} {v}{u}",
                "where the {h} is {v}{u}",
                "given {h} = {v}",
                "a {h} of {v}{u}",
                "having {h} {v}",
                "{h} {v}{u}",
                "for a {h} of {v}{u}",
            )
        ),
    )


def S(called: str, descriptions: str, bank: tuple[str, ...] | Make, mentions: str) -> Kind:
    """A string parameter."""
    make = pick(bank) if isinstance(bank, tuple) else bank
    return Kind(
        tuple(called.split("/")),
        "string",
        tuple(descriptions.split("|")),
        make,
        tuple(mentions.split("|")),
    )


def E(called: str, descriptions: str, options: str, mentions: str) -> Kind:
    """A string parameter with an enumeration."""
    bank = tuple(options.split("/"))
    return Kind(
        tuple(called.split("/")),
        "string",
        tuple(descriptions.split("|")),
        pick(bank, closed=True),
        tuple(mentions.split("|")),
        enum=bank,
    )


def A(called: str, items: str, descriptions: str, make: Make, mentions: str) -> Kind:
    """An array parameter."""
    return Kind(
        tuple(called.split("/")),
        "array",
        tuple(descriptions.split("|")),
        make,
        tuple(mentions.split("|")),
        items=items,
    )
