"""Hand-written functions ("frames") and the sentences people ask for them in.

A frame says what a function does and how users speak of it, which the built-up functions of
`tools` cannot: there the question repeats the document's words, here it paraphrases them.
The files in `frames/` hold, line by line:

    == group: prefix, prefix         a group, and words that may precede its functions' names
    + name / name / name             a function; one of the names is shown
    : description | description
    - name alias alias | kind | description | description          a required parameter
    ? name alias | kind = default | description                    an optional parameter
    > sentence with {name}[ and an optional part with {other}]     a way to ask

Kinds are those of `values`. Every sentence states every required parameter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from tools.demo_model.data.calls import HINT
from tools.demo_model.data.values import Value, value_of

EXAMPLES = ("For example", "E.g.", "Such as")
FOLDER = Path(__file__).with_name("frames")
Said = tuple[Any, str]  # a value, and the words for it
Piece = str | int  # literal text, or the number of a parameter
Segment = tuple[tuple[Piece, ...], bool]  # pieces, and whether they may be left out


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a frame."""

    names: tuple[str, ...]
    value: Value
    descriptions: tuple[str, ...]
    required: bool
    default: str


@dataclass(slots=True)
class Frame:
    """One function with the sentences that ask for it."""

    group: str
    prefixes: tuple[str, ...]
    names: tuple[str, ...]
    descriptions: tuple[str, ...] = ()
    params: list[Param] = field(default_factory=list)
    sentences: list[tuple[Segment, ...]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Shown:
    """A frame as one row shows it: the document, and each parameter's name in it."""

    frame: Frame
    document: dict[str, Any]
    names: tuple[str, ...]
    forced: dict[int, Any]  # flags the document requires; unstated they are their defaults

    @property
    def name(self) -> str:
        """The function's name in the document."""
        return str(self.document["name"])

    def arguments(self, values: dict[int, Any]) -> dict[str, Any]:
        """Name the values, in the document's order."""
        named = {self.names[n]: value for n, value in {**self.forced, **values}.items()}
        return {k: named[k] for k in self.document["parameters"]["properties"] if k in named}


def _fields(line: str, mark: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in line.split(mark))


def _param(line: str) -> Param:
    names, spec, *descriptions = _fields(line[1:], " | ")
    kind, _, default = spec.partition(" = ")
    return Param(tuple(names.split()), value_of(kind), tuple(descriptions), line[0] == "-", default)


def _sentence(text: str, params: list[Param]) -> tuple[Segment, ...]:
    """Split a sentence into segments. Raises ValueError on a name that is no parameter."""
    numbers = {param.names[0]: number for number, param in enumerate(params)}
    segments: list[Segment] = []
    for part in re.split(r"(\[[^\]]*\])", text):
        optional = part.startswith("[")
        pieces: list[Piece] = []
        for piece in re.split(r"(\{\w+\})", part.strip("[]") if optional else part):
            if piece.startswith("{"):
                if piece[1:-1] not in numbers:
                    raise ValueError(f"{text!r}: no parameter {piece}")
                pieces.append(numbers[piece[1:-1]])
            elif piece:
                pieces.append(piece)
        if pieces:
            segments.append((tuple(pieces), optional))
    return tuple(segments)


def parse(text: str) -> list[Frame]:
    """Return the frames of one file's text."""
    found: list[Frame] = []
    group = ""
    prefixes: tuple[str, ...] = ()
    for line in text.splitlines():
        mark, rest = line[:1], line[1:].strip()
        if line.startswith("=="):
            group, _, rest = line[2:].strip().partition(":")
            prefixes = _fields(rest, ",")
        elif mark == "+":
            found.append(Frame(group, prefixes, _fields(rest, "/")))
        elif mark == ":":
            found[-1].descriptions = _fields(rest, " | ")
        elif mark in ("-", "?"):
            found[-1].params.append(_param(line))
        elif mark == ">":
            found[-1].sentences.append(_sentence(rest, found[-1].params))
        elif line.strip() and mark != "#":
            raise ValueError(f"line starts with no known mark: {line!r}")
    return found


@lru_cache(maxsize=1)
def all_frames() -> tuple[Frame, ...]:
    """Return every frame, in the files' order."""
    paths = sorted(FOLDER.glob("*.txt"))
    return tuple(frame for path in paths for frame in parse(path.read_text(encoding="utf-8")))


def _default(param: Param) -> tuple[str, Any]:
    """Return the default's words, and its value where it has the parameter's type."""
    kind, text = param.value.json_type, param.default
    try:
        if kind == "integer":
            return f"Default is {int(text)}.", int(text)
        if kind == "number":
            return f"Default is {float(text)}.", float(text)
    except ValueError:
        return f"Optional, {text} if not given.", None
    if kind == "boolean":
        return f"Default is {text.capitalize()}.", text == "true"
    return f"Default is '{text.strip(chr(39))}'.", None


def _property(rng: Random, param: Param) -> dict[str, Any]:
    value = param.value
    text = rng.choice(param.descriptions)
    prop: dict[str, Any] = {"type": value.json_type, "description": text}
    if value.items:
        prop["items"] = {"type": value.items}
    if value.json_type == "string" and not value.enum and rng.random() < 0.15:
        # An example in a document is no argument: the question's value counts.
        prop["description"] += f" {rng.choice(EXAMPLES)} '{value.make(rng)[0]}'."
    if value.enum and rng.random() < 0.75:
        target = prop["items"] if value.items else prop
        target["enum"] = list(value.enum)
    elif value.enum:
        prop["description"] += " One of: " + ", ".join(value.enum) + "."
    if param.default:
        words, default = _default(param)
        style = rng.random()
        if style < 0.25 and default is not None:
            prop["default"] = default
        elif style < 0.85:
            prop["description"] += " " + words
        else:
            prop["description"] = "Optional. " + prop["description"]
    return prop


def _name(rng: Random, frame: Frame) -> str:
    """A function's name: dots of a library are underscores in the tools API."""
    name = rng.choice(frame.names)
    style = rng.random()
    if style < 0.35:
        return f"{rng.choice(frame.prefixes)}_{name}"
    if style < 0.43:
        first, *rest = name.split("_")
        return first + "".join(part.capitalize() for part in rest)
    return name


def show(rng: Random, frame: Frame) -> Shown:
    """Choose names and wording of a frame's document."""
    names: list[str] = []
    for param in frame.params:
        name = param.names[0] if rng.random() < 0.4 else rng.choice(param.names)
        names.append(name if name not in names else param.names[0])
    if len(set(names)) < len(names):
        names = [param.names[0] for param in frame.params]
    flags = [i for i, param in enumerate(frame.params) if param.value.json_type == "boolean"]
    forced = {
        i: frame.params[i].default == "true"
        for i in flags
        if not frame.params[i].required and rng.random() < 0.15
    }
    order = list(range(len(names)))
    if rng.random() < 0.15:
        rng.shuffle(order)
    document = {
        "name": _name(rng, frame),
        "description": _description(rng, frame, names),
        "parameters": {
            "type": "object",
            "properties": {names[i]: _property(rng, frame.params[i]) for i in order},
            "required": [
                names[i] for i in range(len(names)) if frame.params[i].required or i in forced
            ],
        },
    }
    return Shown(frame, document, tuple(names), forced)


def _other(rng: Random, param: Param, values: dict[int, Any]) -> Said:
    """A value; of a text one that the sentence has not said yet, where there is one."""
    made = param.value.make(rng)
    for _ in range(3):
        if param.value.json_type != "string" or made[0] not in values.values():
            break
        made = param.value.make(rng)
    return made


def _description(rng: Random, frame: Frame, names: list[str]) -> str:
    text = rng.choice(frame.descriptions)
    required = [n.replace("_", " ") for n, p in zip(names, frame.params, strict=True) if p.required]
    if rng.random() < 0.3 and len(required) > 1:
        given = ", ".join(required[:-1]) + " and " + required[-1]
        text = f"{text.removesuffix('.')}, {rng.choice(('given', 'based on', 'from'))} {given}."
    return text + (HINT if rng.random() < 0.9 else "")


def say(
    rng: Random,
    frame: Frame,
    given: dict[int, Said] | None = None,
    sentence: tuple[Segment, ...] | None = None,
) -> tuple[str, dict[int, Any]]:
    """Return a sentence that asks for the frame, and the values it states.

    `given` fixes values and words, and their optional parts are then said.
    """
    known = dict(given or {})
    text = ""
    values: dict[int, Any] = {}
    for pieces, optional in sentence or rng.choice(frame.sentences):
        asked = any(piece in known for piece in pieces if isinstance(piece, int))
        if optional and not asked and rng.random() > 0.45:
            continue
        for piece in pieces:
            if isinstance(piece, str):
                text += piece
                continue
            if piece not in known:
                known[piece] = _other(rng, frame.params[piece], values)
            values[piece], words = known[piece]
            quoted = values[piece] == words and text[-1:] == " " and rng.random() < 0.06
            text += f"'{words}'" if quoted else words
    return text[:1].upper() + text[1:], values
