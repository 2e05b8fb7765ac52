"""Tool-call examples of functions built up from words, and the mixture with those of frames."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from tools.demo_model.data import frame_calls
from tools.demo_model.data import words as w
from tools.demo_model.data.calls import HINT, REFUSALS, call_row, call_text
from tools.demo_model.data.kinds import COMMON, KINDS
from tools.demo_model.data.params import Kind

VERBS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "get",
        (
            "Get the {o}",
            "What is the {o}",
            "Can you get me the {o}",
            "I need the {o}",
            "Give me the {o}",
            "Retrieve the {o}",
        ),
    ),
    (
        "find",
        (
            "Find the {o}",
            "Find me a {o}",
            "Look up the {o}",
            "Could you find the {o}",
            "I am looking for a {o}",
            "Help me find the {o}",
        ),
    ),
    (
        "calculate",
        (
            "Calculate the {o}",
            "What is the {o}",
            "Compute the {o}",
            "Can you calculate the {o}",
            "Determine the {o}",
            "How much is the {o}",
            "I want to know the {o}",
        ),
    ),
    (
        "search",
        ("Search for a {o}", "Search the {o}", "Find a {o}", "Show me a {o}", "Is there a {o}"),
    ),
    ("fetch", ("Fetch the {o}", "Tell me the {o}", "What's the {o}", "Show the {o}")),
    ("check", ("Check the {o}", "Can you check the {o}", "Verify the {o}", "Please check the {o}")),
    (
        "predict",
        ("Predict the {o}", "Estimate the {o}", "What will the {o} be", "Forecast the {o}"),
    ),
    ("book", ("Book a {o}", "Reserve a {o}", "I want to book a {o}", "Please arrange a {o}")),
    ("create", ("Create a {o}", "Add a new {o}", "Make a {o}", "Set up a {o}")),
    ("compare", ("Compare the {o}", "How does the {o} compare", "Give me a comparison of the {o}")),
    (
        "analyze",
        ("Analyze the {o}", "Give me an analysis of the {o}", "What can you say of the {o}"),
    ),
    ("update", ("Update the {o}", "Change the {o}", "Please update the {o}")),
)
DESCRIPTIONS = (
    "{V} the {o}.",
    "{V} {o} for the given input.",
    "{V} the {o} based on the given parameters.",
    "Tool to {v} the {o}.",
    "This function will {v} the {o}.",
    "{V}s {o}.",
)
GLUE = (" ", " ", ", ", " and ")


@dataclass(frozen=True, slots=True)
class Function:
    """An invented function: its document, and what is needed to ask for it."""

    group: str
    verb: int
    noun: str
    name: str
    document: dict[str, Any]
    required: tuple[tuple[str, Kind], ...]
    optional: tuple[tuple[str, Kind], ...]


def _name(rng: Random, verb: str, noun: str) -> str:
    stop = {"a", "of", "the", "an", "in", "between", "for"}
    parts = [part.lower() for part in noun.replace("-", " ").split() if part not in stop]
    style = rng.random()
    if style < 0.6:
        return f"{verb}_{'_'.join(parts)}"
    if style < 0.72:
        return "_".join([*parts, verb])
    if style < 0.87:
        return f"{rng.choice(parts)}_{verb}_{'_'.join(parts)}"[:60]
    return verb + "".join(part.capitalize() for part in parts)


def _property(kind: Kind, rng: Random, *, optional: bool) -> dict[str, Any]:
    prop: dict[str, Any] = {"type": kind.json_type, "description": rng.choice(kind.descriptions)}
    if kind.json_type == "array":
        prop["items"] = {"type": kind.items}
    if kind.enum:
        if rng.random() < 0.7:
            prop["enum"] = list(kind.enum)
        else:
            prop["description"] += " One of: " + ", ".join(kind.enum) + "."
    if optional and kind.json_type != "array" and rng.random() < 0.5:
        default = False if kind.json_type == "boolean" else kind.make(rng)[0]
        shown = f"'{default}'" if isinstance(default, str) else str(default)
        prop["description"] += rng.choice(
            (" Default is {v}.", " Optional, defaults to {v}.")
        ).replace("{v}", shown)
    return prop


def invent(rng: Random, group: str | None = None) -> Function:
    """Return a new function of a group, with one to four required parameters."""
    group = group or rng.choice(tuple(KINDS))
    noun = rng.choice(w.OBJECTS[group])
    verb = rng.randrange(len(VERBS))
    pool = list(KINDS[group])
    rng.shuffle(pool)
    taken: dict[str, Kind] = {}
    needed = rng.choices((1, 2, 3, 4), (3, 4, 3, 1))[0]
    extra = rng.choices((0, 1, 2), (4, 4, 2))[0]
    for kind in [*pool[: needed + extra], rng.choice(COMMON)][: needed + extra]:
        name = rng.choice(kind.names) if rng.random() < 0.8 else kind.names[0]
        if name not in taken:
            taken[name] = kind
    items = list(taken.items())
    required, optional = tuple(items[:needed]), tuple(items[needed:])
    name = _name(rng, VERBS[verb][0], noun)
    hint = HINT if rng.random() < 0.8 else ""
    text = rng.choice(DESCRIPTIONS).format(V=VERBS[verb][0].capitalize(), v=VERBS[verb][0], o=noun)
    document = {
        "name": name,
        "description": text + hint,
        "parameters": {
            "type": "object",
            "properties": {
                key: _property(kind, rng, optional=number >= needed)
                for number, (key, kind) in enumerate(items)
            },
            "required": [key for key, _ in required],
        },
    }
    return Function(group, verb, noun, name, document, required, optional)


LOOSE = (
    "Work this out for me",
    "I need an answer to this",
    "Help me with this one",
    "Here is what I know",
    "Please handle this",
    "What would it be",
    "Can you do this",
)
CONTEXTS = (
    "I am working on a report for my class.",
    "My friend asked me this yesterday.",
    "We are planning for next month.",
    "I have a test tomorrow.",
    "For my research project, I need some information.",
    "I just moved here.",
    "Our team needs this today.",
)


def _lead(rng: Random, function: Function) -> str:
    """Open a request; often without the words that the function's document uses."""
    style = rng.random()
    noun = function.noun
    words = noun.split()
    if style < 0.12:
        return rng.choice(LOOSE)
    if style < 0.30 and len(words) > 1:
        noun = words[-1] if rng.random() < 0.5 else words[0]
    elif style < 0.42 and " of " in noun:
        head, tail = noun.split(" of ", 1)
        noun = f"{tail.removeprefix('a ').removeprefix('an ').removeprefix('the ')} {head}"
    verb = function.verb if rng.random() < 0.6 else rng.randrange(len(VERBS))
    text = rng.choice(VERBS[verb][1]).format(o=noun)
    return f"{rng.choice(CONTEXTS)} {text}" if rng.random() < 0.08 else text


def ask(rng: Random, function: Function, *, skip_lead: bool = False) -> tuple[str, dict[str, Any]]:
    """Return a sentence that asks for the function, and the arguments it states."""
    stated = list(function.required)
    stated += [item for item in function.optional if rng.random() < 0.5]
    rng.shuffle(stated)
    arguments: dict[str, Any] = {}
    said: list[str] = []
    for name, kind in stated:
        value, words = kind.make(rng)
        arguments[name] = value
        said.append(rng.choice(kind.mentions).replace("{v}", words))
    ordered = {
        key: arguments[key]
        for key in function.document["parameters"]["properties"]
        if key in arguments
    }
    lead = _lead(rng, function)
    body = ""
    for index, part in enumerate(said):
        glue = (
            " "
            if index == 0
            else (rng.choice(GLUE) if index < len(said) - 1 else rng.choice((" ", " and ", ", ")))
        )
        body += glue + part
    sentence = body.strip() if skip_lead else lead + body
    if not skip_lead and rng.random() < 0.12:
        first = body.strip()
        sentence = f"{first[0].upper()}{first[1:]}, {lead[0].lower()}{lead[1:]}"
    end = "?" if lead.startswith(("What", "Can", "Could", "How", "Is")) else "."
    if rng.random() < 0.1:
        end = ""
    return sentence + end, ordered


def _others(rng: Random, function: Function, count: int) -> list[Function]:
    """Distractors: half from the same group, none with the same name or object."""
    found: list[Function] = []
    while len(found) < count:
        other = invent(rng, function.group if rng.random() < 0.5 else None)
        if other.noun != function.noun and other.name not in {f.name for f in [function, *found]}:
            found.append(other)
    return found


def _row(functions: list[Function], rng: Random, question: str, answer: str) -> dict[str, Any]:
    return call_row(rng, [function.document for function in functions], question, answer)


def single(rng: Random, *, distractors: int) -> dict[str, Any]:
    """One call, of one function or of one among several."""
    function = invent(rng)
    question, arguments = ask(rng, function)
    if rng.random() < 0.12:
        name = rng.choice(w.FIRST)
        question = rng.choice(
            (
                f"Hi, I'm {name}. {question}",
                f"{question} Thanks!",
                f"{name} wants to know: {question}",
                f"Please help. {question}",
            )
        )
    return _row(
        [function, *_others(rng, function, distractors)],
        rng,
        question,
        call_text(function.name, arguments),
    )


def parallel(rng: Random) -> dict[str, Any]:
    """Several calls of one function: one parameter varies, or whole sentences follow each other."""
    function = invent(rng)
    count = rng.choices((2, 3, 4), (5, 3, 1))[0]
    if rng.random() < 0.5:
        asked = [ask(rng, function, skip_lead=i > 0) for i in range(count)]
        joiner = rng.choice((" Also, ", " and ", " Then, ", "; also "))
        question = joiner.join(text.rstrip(".?") for text, _ in asked) + rng.choice(".?")
        calls = [arguments for _, arguments in asked]
    else:
        question, base = ask(rng, function)
        name, kind = rng.choice(
            [item for item in (*function.required, *function.optional) if item[0] in base]
        )
        made = [kind.make(rng) for _ in range(count)]
        said = ", ".join(text for _, text in made[:-1]) + " and " + made[-1][1]
        plain = {k: v for k, v in base.items() if k != name}
        fixed = dict(function.required)
        lead = rng.choice(VERBS[function.verb][1]).format(o=function.noun)
        rest = []
        for key in list(plain):
            value, words = {**fixed, **dict(function.optional)}[key].make(rng)
            plain[key] = value
            rest.append(
                rng.choice({**fixed, **dict(function.optional)}[key].mentions).replace("{v}", words)
            )
        mention = rng.choice(kind.mentions).replace("{v}", said)
        question = " ".join([lead, mention, *rest]) + rng.choice(
            ("?", ".", " separately.", " for each.")
        )
        order = list(function.document["parameters"]["properties"])
        calls = []
        for value, _ in made:
            merged = {**plain, name: value}
            calls.append({key: merged[key] for key in order if key in merged})
    answer = "\n".join(call_text(function.name, arguments) for arguments in calls)
    extra = _others(rng, function, rng.choice((1, 2))) if rng.random() < 0.2 else []
    return _row([function, *extra], rng, question, answer)


def parallel_multiple(rng: Random) -> dict[str, Any]:
    """Several functions, each called once or more, in the order asked."""
    first = invent(rng)
    functions = [first, *_others(rng, first, rng.choice((1, 1, 2)))]
    asked = [(function, *ask(rng, function)) for function in functions]
    question = rng.choice((" Also, ", " Then ", " And ", " After that, ")).join(
        text for _, text, _ in asked
    )
    answer = "\n".join(call_text(function.name, arguments) for function, _, arguments in asked)
    extra = _others(rng, first, 1) if rng.random() < 0.4 else []
    extra = [f for f in extra if f.name not in {g.name for g in functions}]
    return _row([*functions, *extra], rng, question, answer)


def irrelevant(rng: Random) -> dict[str, Any]:
    """A question that none of the functions shown fits."""
    wanted = invent(rng)
    question = rng.choice(w.OFF_TOPIC) if rng.random() < 0.2 else ask(rng, wanted)[0]
    shown: list[Function] = []
    count = rng.choices((1, 2, 3), (6, 2, 1))[0]
    while len(shown) < count:
        other = invent(rng, wanted.group if rng.random() < 0.08 else None)
        if other.noun != wanted.noun and other.name not in {f.name for f in shown}:
            shown.append(other)
    return _row(shown, rng, question, rng.choice(REFUSALS))


def example(rng: Random) -> dict[str, Any]:
    """One tool-call example of the mixture: two of three from frames, the others built up."""
    framed = rng.random() < 0.67
    one = frame_calls.single if framed else single
    kind = rng.random()
    if kind < 0.38:
        return one(rng, distractors=0)
    if kind < 0.62:
        return one(rng, distractors=rng.choice((1, 1, 2, 2, 3)))
    if kind < 0.81:
        return frame_calls.parallel(rng) if framed else parallel(rng)
    if kind < 0.86:
        return frame_calls.parallel_multiple(rng) if framed else parallel_multiple(rng)
    return frame_calls.irrelevant(rng) if framed else irrelevant(rng)
