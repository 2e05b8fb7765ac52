"""Value kinds of the frames: `int 1 60` or `enum low/high` -> a JSON type and a maker of values.

A maker returns a value and the words a user says for it. The words often differ from the value:
"2 hours" is 120 minutes, "7%" is 0.07, "by car" is "driving", "3 million" is 3000000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tools.demo_model.data import names
from tools.demo_model.data import params as p
from tools.demo_model.data import words as w

DOMAINS = ("example.com", "example.org", "mail.example.net")


@dataclass(frozen=True, slots=True)
class Value:
    """What a parameter takes; `items` and `enum` are for arrays and closed sets."""

    json_type: str
    make: p.Make
    items: str | None = None
    enum: tuple[str, ...] = ()


def _choices(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read `a=one,uno/b` as (("a", ("one", "uno")), ("b", ("b",)))."""
    found = []
    for part in text.split("/"):
        value, mark, said = part.partition("=")
        found.append((value, tuple(said.split(",")) if mark else (value,)))
    return tuple(found)


def _chooser(text: str, *, closed: bool = True) -> p.Make:
    options = _choices(text)
    named = not closed and "=" not in text and names.are_open(tuple(v for v, _ in options))

    def make(rng: Random) -> tuple[Any, str]:
        if named and rng.random() < 0.25:
            value = names.proper(rng)
            return value, value
        value, said = rng.choice(options)
        return value, rng.choice(said)

    return make


def _some(text: str) -> p.Make:
    options = _choices(text)

    def make(rng: Random) -> tuple[Any, str]:
        chosen = rng.sample(options, rng.choices((1, 2, 3), (3, 5, 2))[0])
        return [value for value, _ in chosen], _joined([rng.choice(said) for _, said in chosen])

    return make


def _joined(said: list[str]) -> str:
    return said[0] if len(said) == 1 else ", ".join(said[:-1]) + " and " + said[-1]


def _several(bank: tuple[str, ...]) -> p.Make:
    def make(rng: Random) -> tuple[Any, str]:
        chosen = rng.sample(bank, rng.choices((2, 3, 4), (5, 4, 1))[0])
        return chosen, _joined(chosen)

    return make


def _converted(low: int, high: int, factor: int, big: str, small: str) -> p.Make:
    """A quantity wanted in the small unit and often said in the big one."""

    def make(rng: Random) -> tuple[Any, str]:
        if rng.random() < 0.4:
            count = rng.randint(1, max(1, high // factor))
            if count == 1:
                return factor, f"1 {big.removesuffix('s')}"
            return count * factor, f"{count} {big}"
        value = rng.randint(low, high)
        return value, f"{value} {small}"

    return make


def _large(rng: Random) -> tuple[Any, str]:
    kind = rng.random()
    if kind < 0.4:
        count = rng.randint(1, 900)
        return count * 1_000_000, f"{count} million"
    if kind < 0.55:
        tenths = rng.randint(11, 99)
        return tenths * 100_000, f"{tenths / 10:g} million"
    if kind < 0.7:
        count = rng.randint(2, 900)
        return count * 1000, f"{count} thousand"
    value = rng.randint(2, 9000) * 100
    return value, f"{value:,}" if rng.random() < 0.6 else str(value)


def _money(low: int, high: int) -> p.Make:
    def make(rng: Random) -> tuple[Any, str]:
        value = rng.randint(low, high)
        if value > 1000:
            value = round(value, -2 if rng.random() < 0.6 else -3)
        said = f"{value:,}" if rng.random() < 0.5 else str(value)
        kind = rng.random()
        if value >= 1000 and value % 1000 == 0 and kind < 0.12:
            return value, f"{value // 1000}k"
        return value, f"${said}" if kind < 0.7 else f"{said} dollars"

    return make


def _whole_percent(low: int, high: int) -> p.Make:
    def make(rng: Random) -> tuple[Any, str]:
        value = rng.randint(low, high)
        return value, f"{value}%" if rng.random() < 0.7 else f"{value} percent"

    return make


def _switch(text: str) -> p.Make:
    yes, _, no = text.partition("~")

    def make(rng: Random) -> tuple[Any, str]:
        value = not no or rng.random() < 0.5
        return value, rng.choice((yes if value else no).split(","))

    return make


def _quoted(text: str) -> p.Make:
    bank = text.split("/")

    def make(rng: Random) -> tuple[Any, str]:
        value = names.sentence(rng) if rng.random() < 0.5 else rng.choice(bank)
        mark = rng.choice("''\"")
        return value, f"{mark}{value}{mark}"

    return make


def _address(rng: Random) -> tuple[Any, str]:
    value = f"{rng.choice(w.FIRST).lower()}.{rng.choice(w.LAST).lower()}@{rng.choice(DOMAINS)}"
    return value, value


def _day(shape: str) -> p.Make:
    """A day wanted as `shape`, e.g. "{m:02d}/{d:02d}/{y}"."""

    def make(rng: Random) -> tuple[Any, str]:
        iso, said = p.date(rng)
        year, month, day = (int(part) for part in iso.split("-"))
        return shape.format(y=year, m=month, d=day), said

    return make


def _number_choice(text: str) -> p.Make:
    inner = _chooser(text)

    def make(rng: Random) -> tuple[Any, str]:
        value, said = inner(rng)
        return float(value), said

    return make


def _decimal(low: str, high: str, places: str = "1") -> p.Make:
    return p.decimal(float(low), float(high), int(places))


def _numbers(make: Callable[..., p.Make], low: str, high: str, *size: str) -> p.Make:
    if not size:
        return make(int(low), int(high))
    return make(int(low), int(high), (int(size[0]), int(size[1])))


def value_of(spec: str) -> Value:
    """Return the Value of a spec such as `int 1 60`. Raises KeyError on an unknown kind."""
    kind, _, rest = spec.partition(" ")
    if kind in _FIXED:
        return _FIXED[kind]
    return _READ[kind](rest)


def _bank(name: str) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(w, name)
    return found


def _enum(rest: str) -> Value:
    return Value("string", _chooser(rest), enum=tuple(value for value, _ in _choices(rest)))


def _some_of(rest: str) -> Value:
    names = tuple(value for value, _ in _choices(rest))
    return Value("array", _some(rest), items="string", enum=names)


def _ints(rest: str) -> list[int]:
    return [int(part) for part in rest.split()]


def _conversion(rest: str) -> Value:
    low, high, factor, big, small = rest.split()
    return Value("integer", _converted(int(low), int(high), int(factor), big, small))


_FIXED: dict[str, Value] = {
    "pct": Value("number", p.percent),
    "big": Value("integer", _large),
    "date": Value("string", p.date),
    "dateus": Value("string", _day("{m:02d}/{d:02d}/{y}")),
    "datemdy": Value("string", _day("{m:02d}-{d:02d}-{y}")),
    "clock": Value("string", p.clock),
    "person": Value("string", p.person),
    "citystate": Value("string", p.city_state),
    "code": Value("string", p.code),
    "email": Value("string", _address),
}
_READ: dict[str, Callable[[str], Value]] = {
    "int": lambda rest: Value("integer", p.integer(*_ints(rest))),
    "num": lambda rest: Value("number", _decimal(*rest.split())),
    "money": lambda rest: Value("integer", _money(*_ints(rest))),
    "pctint": lambda rest: Value("integer", _whole_percent(*_ints(rest))),
    "year": lambda rest: Value("integer", p.year(*_ints(rest))),
    "conv": _conversion,
    "bank": lambda rest: Value("string", p.pick(_bank(rest))),
    "pick": lambda rest: Value("string", _chooser(rest, closed=False)),
    "npick": lambda rest: Value("number", _number_choice(rest)),
    "enum": _enum,
    "some": lambda rest: Value("array", _some(rest), items="string"),
    "someof": _some_of,
    "list": lambda rest: Value("array", _several(_bank(rest)), items="string"),
    "ints": lambda rest: Value("array", _numbers(p.plain_numbers, *rest.split()), items="integer"),
    "nums": lambda rest: Value("array", _numbers(p.float_numbers, *rest.split()), items="number"),
    "bool": lambda rest: Value("boolean", _switch(rest)),
    "quote": lambda rest: Value("string", _quoted(rest)),
}
