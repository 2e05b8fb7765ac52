"""Rows from frames: one call, one of several functions, several calls, and none that fits."""

from __future__ import annotations

import json
import re
from functools import cache
from random import Random
from typing import Any

from tools.demo_model.data import words as w
from tools.demo_model.data.calls import REFUSALS, call_row, call_text
from tools.demo_model.data.frames import Frame, Said, Segment, Shown, all_frames, say, show

ORDINALS = ("first", "second", "third", "fourth")
COUNTS = {2: "two", 3: "three", 4: "four"}
# First words of descriptions that are no command.
NOUNS = ("Chance", "Energy", "How", "Frequency", "Distance", "Average")
ORDERS = (
    "Can you {t} for {n} cases?",
    "I need you to {t} {n} times.",
    "Please {t} for {n} different inputs.",
    "There are {n} cases. For each, {t}.",
)
TOPICS = ("I have {n} questions: {t}.", "Tell me for {n} cases {t}.")
POLITE = (
    "Please help. {q}",
    "{q} Thanks!",
    "Hi, I'm {n}. {q}",
    "{n} wants to know: {q}",
    "I'm new to this. {q}",
    "Can you help me with this? {q}",
    "For a school project: {q}",
    "{q} I need it today.",
)


UNITS = re.compile(r"(\d) (cm|m|km|kg|ml|mm|kN|dB|mA|W|V|L|kWh)\b")


def _framed(rng: Random, question: str) -> str:
    """Add what users add and leave out: a greeting, the space before a unit, the last point."""
    style = rng.random()
    if style < 0.08:
        return question.rstrip(".?")
    if style < 0.20:
        return UNITS.sub(r"\1\2", question)
    if style > 0.32:
        return question
    return rng.choice(POLITE).format(q=question, n=rng.choice(w.FIRST))


@cache
def _group(name: str) -> tuple[Frame, ...]:
    return tuple(frame for frame in all_frames() if frame.group == name)


def _some(rng: Random, count: int, near: str, without: list[Frame]) -> list[Frame]:
    """Other frames: each of the group `near` with even odds, none that is in `without`."""
    found: list[Frame] = []
    while len(found) < count:
        other = rng.choice(_group(near) if near and rng.random() < 0.5 else all_frames())
        if not any(other is frame for frame in [*found, *without]):
            found.append(other)
    return found


def _documents(rng: Random, first: Shown, others: list[Frame]) -> list[dict[str, Any]]:
    documents = [first.document]
    for frame in others:
        document = show(rng, frame).document
        if document["name"] not in {known["name"] for known in documents}:
            documents.append(document)
    return documents


def single(rng: Random, *, distractors: int) -> dict[str, Any]:
    """One call, of the only function or of one among several."""
    frame = rng.choice(all_frames())
    shown = show(rng, frame)
    question, values = say(rng, frame)
    documents = _documents(rng, shown, _some(rng, distractors, frame.group, [frame]))
    answer = call_text(shown.name, shown.arguments(values))
    return call_row(rng, documents, _framed(rng, question), answer)


def irrelevant(rng: Random) -> dict[str, Any]:
    """A question that none of the functions fits; a third of the time their group is the same."""
    wanted = rng.choice(all_frames())
    question = rng.choice(w.OFF_TOPIC) if rng.random() < 0.25 else say(rng, wanted)[0]
    count = rng.choices((1, 2, 3), (7, 2, 1))[0]
    near = wanted.group if rng.random() < 0.6 else ""
    documents = [show(rng, frame).document for frame in _some(rng, count, near, [wanted])]
    return call_row(rng, documents, _framed(rng, question), rng.choice(REFUSALS))


def _varying(sentence: tuple[Segment, ...], frame: Frame) -> list[int]:
    """The parameters that a sentence states whose values read well in a list."""
    stated = {piece for pieces, _ in sentence for piece in pieces if isinstance(piece, int)}
    return [
        number
        for number in sorted(stated)
        if frame.params[number].value.json_type not in ("array", "boolean")
    ]


def _distinct(rng: Random, frame: Frame, number: int, count: int) -> list[Said]:
    """Up to `count` values of a parameter, no two alike."""
    found: list[Said] = []
    for _ in range(count * 3):
        value, words = frame.params[number].value.make(rng)
        if len(found) < count and value not in [known for known, _ in found]:
            found.append((value, words))
    return found


def _list(said: list[str]) -> str:
    return ", ".join(said[:-1]) + " and " + said[-1]


def _listed(rng: Random, frame: Frame, count: int) -> tuple[str, list[dict[int, Any]]]:
    """One sentence; one parameter is a list, or two are lists that go together."""
    sentence = rng.choice(frame.sentences)
    able = _varying(sentence, frame)
    if not able:
        return _sentences(rng, frame, count)
    chosen = rng.sample(able, 2) if len(able) > 1 and rng.random() < 0.35 else [rng.choice(able)]
    made = {number: _distinct(rng, frame, number, count) for number in chosen}
    count = min(len(values) for values in made.values())
    if count < 2:
        return _sentences(rng, frame, 2)
    given: dict[int, Said] = {
        number: (None, _list([words for _, words in values[:count]]))
        for number, values in made.items()
    }
    text, values = say(rng, frame, given, sentence)
    end = text[-1] if text[-1] in ".?" else ""
    body = text.removesuffix(end) if end else text
    tail = ", respectively" if len(chosen) > 1 else rng.choice(("", "", "", " separately"))
    calls = []
    for index in range(count):
        varied = {number: made[number][index][0] for number in chosen}
        calls.append({**values, **varied})
    return body + tail + end, calls


def _sentences(rng: Random, frame: Frame, count: int) -> tuple[str, list[dict[int, Any]]]:
    """Whole sentences one after the other; sometimes only the change is said."""
    sentence = rng.choice(frame.sentences) if rng.random() < 0.5 else None
    asked = [say(rng, frame, None, sentence) for _ in range(count)]
    texts = [text for text, _ in asked]
    join = rng.choice((" Also, ", " Then, ", " And ", " ", " After that, ", " Next, ", "; also "))
    body = texts[0]
    for text in texts[1:]:
        body = body.rstrip(".?") if join.startswith(";") else body
        body += join + (text if join == " " else text[0].lower() + text[1:])
    return body, [values for _, values in asked]


def _changed(rng: Random, frame: Frame, count: int) -> tuple[str, list[dict[int, Any]]]:
    """A sentence, and then `the same for` other values of one parameter."""
    text, values = say(rng, frame)
    sentence: tuple[Segment, ...] = ((tuple(values), False),)
    able = _varying(sentence, frame)
    if not able:
        return _sentences(rng, frame, count)
    number = rng.choice(able)
    more = [item for item in _distinct(rng, frame, number, count - 1) if item[0] != values[number]]
    if not more:
        return _sentences(rng, frame, count)
    said = _list([words for _, words in more]) if len(more) > 1 else more[0][1]
    human = frame.params[number].names[0].replace("_", " ")
    again = rng.choice(
        (
            "Do the same for {v}.",
            "Then do it again with {v} as the {h}.",
            "Also do this when the {h} is {v}.",
            "What about {v}?",
            "And the same for a {h} of {v}.",
            "Repeat it for {h} {v}.",
        )
    )
    again = again.format(v=said, h=human)
    return f"{text} {again}", [values, *({**values, number: value} for value, _ in more)]


def _numbered(rng: Random, frame: Frame, count: int) -> tuple[str, list[dict[int, Any]]]:
    """The task once, in the words of its description, and the cases one after the other."""
    required = [n for n, param in enumerate(frame.params) if param.required]
    if not 1 <= len(required) <= 4:
        return _sentences(rng, frame, count)
    task = frame.descriptions[0].rstrip(".")
    order = task.split()[0] not in NOUNS
    task = task[0].lower() + task[1:]
    calls: list[dict[int, Any]] = []
    cases: list[str] = []
    for index in range(count):
        made = {n: frame.params[n].value.make(rng) for n in required}
        calls.append({n: value for n, (value, _) in made.items()})
        said = [f"{frame.params[n].names[0].replace('_', ' ')} {made[n][1]}" for n in required]
        with_ = said[0] if len(said) == 1 else _list(said)
        cases.append(f"the {ORDINALS[index]} has {with_}")
    lead = rng.choice(ORDERS if order else TOPICS)
    body = "; ".join(cases) if rng.random() < 0.3 else ", ".join(cases[:-1]) + " and " + cases[-1]
    return f"{lead.format(t=task, n=COUNTS[count])} {body[0].upper()}{body[1:]}.", calls


PATTERNS = (_listed, _sentences, _changed, _numbered)


def parallel(rng: Random) -> dict[str, Any]:
    """Several calls of one function."""
    frame = rng.choice(all_frames())
    shown = show(rng, frame)
    count = rng.choices((2, 3, 4), (5, 3, 2))[0]
    pattern = rng.choices(PATTERNS, (40, 25, 15, 20))[0]
    question, calls = pattern(rng, frame, count)
    named = [shown.arguments(values) for values in calls]
    # The same call twice is what no user asks for.
    unique = list(
        {json.dumps(arguments, sort_keys=True): arguments for arguments in named}.values()
    )
    if rng.random() < 0.05:
        question += f" Use the '{shown.name}' function."
    others = _some(rng, rng.choice((1, 2)), frame.group, [frame]) if rng.random() < 0.12 else []
    answer = "\n".join(call_text(shown.name, arguments) for arguments in unique)
    return call_row(rng, _documents(rng, shown, others), _framed(rng, question), answer)


def parallel_multiple(rng: Random) -> dict[str, Any]:
    """Several functions, one call each, in the order asked."""
    first = rng.choice(all_frames())
    frames = [first, *_some(rng, rng.choice((1, 1, 2)), first.group, [first])]
    shown = [show(rng, frame) for frame in frames]
    if len({item.name for item in shown}) < len(shown):
        return single(rng, distractors=1)
    asked = [say(rng, frame) for frame in frames]
    question = rng.choice((" Also: ", " Then: ", " ", " After that: ")).join(t for t, _ in asked)
    answer = "\n".join(
        call_text(item.name, item.arguments(values))
        for item, (_, values) in zip(shown, asked, strict=True)
    )
    extra = [show(rng, frame).document for frame in _some(rng, 1, "", frames)]
    names = {item.name for item in shown}
    extra = [doc for doc in extra if doc["name"] not in names] if rng.random() < 0.4 else []
    return call_row(rng, [*(item.document for item in shown), *extra], question, answer)
