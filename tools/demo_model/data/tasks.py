"""Schemas with a task: the JSON has to say what a sentence says, not just be valid."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tools.demo_model.data.values import value_of

# A sentence, and the members it states with their kinds (those of `values`).
TASKS: tuple[tuple[str, dict[str, str]], ...] = (
    ("A dog named {name} that is {age} years old.", {"name": "bank FIRST", "age": "int 1 15"}),
    ("A customer called {name} from {city}.", {"name": "person", "city": "bank CITIES"}),
    (
        "A {product} in {color} for {price} dollars.",
        {"product": "bank PRODUCTS", "color": "bank COLORS", "price": "num 2 90 2"},
    ),
    ("A trip to {country} on {date}.", {"country": "bank COUNTRIES", "date": "date"}),
    ("A call on {day} at {time}.", {"day": "date", "time": "clock"}),
    ("A box {width} wide and {depth} deep.", {"width": "num 1 40", "depth": "num 1 40"}),
    (
        "Order number {order} with status {status}.",
        {"order": "code", "status": "enum open/paid/sent"},
    ),
    ("Write to {email}.", {"email": "email"}),
    ("The user wants {dark}.", {"dark": "bool the dark theme~no dark theme"}),
    ("The account is {active}.", {"active": "bool active,in use~not active,closed"}),
    ("{count} tickets for {event}.", {"count": "int 1 12", "event": "bank TITLES"}),
    ("Labels: {labels}.", {"labels": "some new/cheap/local/green/sold/rare"}),
    ("The scores {scores}, in that order.", {"scores": "ints 0 40 2 4"}),
    ("A team of {members}.", {"members": "list FIRST"}),
    ("The book {title}, {pages} pages.", {"title": "bank TITLES", "pages": "int 40 900"}),
    (
        "A bill of {amount} in {currency}.",
        {"amount": "num 5 400 2", "currency": "enum EUR=euros/USD=dollars/GBP=pounds"},
    ),
    (
        "A printer on port {port}, host {host}.",
        {"port": "int 20 9000", "host": "pick 10.0.0.4/10.1.2.3/172.16.0.9"},
    ),
    (
        "A plant of the kind {species}, {height} cm tall.",
        {"species": "pick rose/fern/cactus/basil", "height": "int 4 200"},
    ),
)
LOOSE: tuple[tuple[str, str], ...] = (
    ("The colour {v}, in one word.", "enum red/blue/black/white/pink"),
    ("The reply is {v}.", "enum yes/no/maybe"),
    ("The size {v}.", "enum small/medium/large"),
    ("The list {v}.", "ints 0 30 2 4"),
    ("The weekday {v}.", "bank WEEKDAYS"),
    ("The number {v}.", "int 0 99"),
)
FORMATS = {"date": "date", "email": "email"}


def _member(rng: Random, kind: str) -> tuple[dict[str, Any], Any, str]:
    value = value_of(kind)
    made, said = value.make(rng)
    schema: dict[str, Any] = {"type": value.json_type}
    if value.items:
        schema["items"] = {"type": value.items}
        if rng.random() < 0.4:
            schema["minItems"] = 1
    if value.enum:
        schema["enum"] = list(value.enum)
    elif kind in FORMATS and rng.random() < 0.7:
        schema["format"] = FORMATS[kind]
    elif value.json_type == "string" and rng.random() < 0.25:
        schema["minLength"] = 1
    elif value.json_type in ("integer", "number") and rng.random() < 0.4:
        schema[rng.choice(("minimum", "exclusiveMinimum"))] = -1 if made == 0 else 0
    return schema, made, said


def document(rng: Random) -> tuple[str, str, str]:
    """Return a task, the text of a schema, and the text of the value that does the task."""
    if rng.random() < 0.25:
        sentence, kind = rng.choice(LOOSE)
        schema, made, said = _member(rng, kind)
        if rng.random() < 0.3:
            schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
        return sentence.replace("{v}", said), json.dumps(schema), json.dumps(made)
    sentence, kinds = rng.choice(TASKS)
    properties: dict[str, Any] = {}
    value: dict[str, Any] = {}
    for name, kind in kinds.items():
        properties[name], value[name], said = _member(rng, kind)
        sentence = sentence.replace("{" + name + "}", said)
    schema = {"type": "object", "properties": properties, "required": list(kinds)}
    if rng.random() < 0.7:
        schema["additionalProperties"] = False
    return sentence, json.dumps(schema), json.dumps(value)
