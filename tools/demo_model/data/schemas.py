"""JSON that follows an invented schema: required members always, a few optional ones."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tools.demo_model.data import words as w

KEYS = (
    "id",
    "name",
    "title",
    "description",
    "type",
    "status",
    "version",
    "email",
    "phone",
    "address",
    "city",
    "country",
    "zip",
    "code",
    "date",
    "startDate",
    "endDate",
    "createdAt",
    "updatedAt",
    "price",
    "amount",
    "currency",
    "quantity",
    "total",
    "enabled",
    "active",
    "visible",
    "public",
    "admin",
    "role",
    "roles",
    "user",
    "users",
    "owner",
    "author",
    "tags",
    "labels",
    "items",
    "values",
    "options",
    "settings",
    "config",
    "url",
    "link",
    "image",
    "icon",
    "color",
    "size",
    "width",
    "height",
    "weight",
    "length",
    "depth",
    "level",
    "count",
    "index",
    "order",
    "priority",
    "score",
    "rating",
    "rank",
    "message",
    "text",
    "content",
    "body",
    "subject",
    "comment",
    "notes",
    "key",
    "token",
    "secret",
    "hash",
    "path",
    "file",
    "files",
    "folder",
    "source",
    "target",
    "parent",
    "children",
    "data",
    "meta",
    "metadata",
    "attributes",
    "properties",
    "parameters",
    "result",
    "results",
    "error",
    "errors",
    "success",
    "timestamp",
    "duration",
    "timeout",
    "interval",
    "limit",
    "offset",
    "page",
    "pages",
    "language",
    "locale",
    "region",
    "latitude",
    "longitude",
    "host",
    "port",
    "protocol",
    "method",
    "headers",
    "query",
    "format",
    "encoding",
    "mode",
    "category",
    "categories",
    "group",
    "groups",
    "team",
    "member",
    "members",
    "project",
    "task",
    "tasks",
    "step",
    "steps",
    "event",
    "events",
    "action",
    "actions",
    "rule",
    "rules",
    "condition",
    "model",
    "brand",
    "product",
    "products",
    "sku",
    "stock",
    "account",
    "balance",
    "payment",
    "invoice",
    "customer",
    "vendor",
    "company",
    "department",
    "employee",
    "firstName",
    "lastName",
    "userName",
    "displayName",
    "fullName",
    "birthDate",
    "gender",
    "age",
    "phoneNumber",
    "postalCode",
    "street",
    "house",
    "unit",
)
PHRASES = (
    "example",
    "test",
    "sample text",
    "main",
    "first entry",
    "hello",
    "default",
    "some value",
    "demo",
    "alpha",
)
PATTERNS: tuple[tuple[str, str], ...] = (
    ("^[a-z]+$", "abc"),
    ("^[A-Z]{3}$", "ABC"),
    ("^[0-9]+$", "123"),
    ("^\\d{4}$", "2024"),
    ("^[a-zA-Z0-9_]+$", "item_1"),
    ("^[0-9a-fA-F]+$", "abc123"),
    ("^[a-z0-9-]+$", "item-1"),
    ("^\\d{4}-\\d{2}-\\d{2}$", "2024-05-01"),
    ("^#[0-9a-f]{6}$", "#a1b2c3"),
    ("^[0-9]{5}$", "12345"),
    ("^v[0-9]+\\.[0-9]+$", "v1.0"),
    ("^https?://", "https://example.com"),
    (".+", "text"),
    ("^[^/]+$", "name"),
    ("^[A-Za-z ]+$", "John Smith"),
    ("^(yes|no)$", "yes"),
    ("[0-9a-fA-F]+", "0123456789ab"),
)
FORMATS: tuple[tuple[str, str], ...] = (
    ("date", "2024-05-01"),
    ("date-time", "2024-05-01T12:00:00Z"),
    ("email", "user@example.com"),
    ("uri", "https://example.com"),
    ("ipv4", "192.168.0.1"),
    ("uuid", "123e4567-e89b-12d3-a456-426614174000"),
    ("time", "12:00:00Z"),
    ("hostname", "example.com"),
)
DRAFTS = (
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-06/schema#",
)


def _string(rng: Random) -> tuple[dict[str, Any], Any]:
    kind = rng.random()
    if kind < 0.5:
        return {"type": "string"}, rng.choice((*PHRASES, *w.CITIES[:20], *w.FIRST[:10]))
    if kind < 0.65:
        options = rng.sample(PHRASES + w.COLORS, rng.randint(1, 5))
        schema: dict[str, Any] = {"enum": options}
        if rng.random() < 0.7:
            schema["type"] = "string"
        return schema, rng.choice(options[:2])
    if kind < 0.8:
        pattern, value = rng.choice(PATTERNS)
        return {"type": "string", "pattern": pattern}, value
    if kind < 0.9:
        name, value = rng.choice(FORMATS)
        return {"type": "string", "format": name}, value
    length = rng.randint(1, 12)
    schema = {"type": "string", "minLength": length}
    if rng.random() < 0.5:
        schema["maxLength"] = length + rng.choice((0, 0, 5, 100))
    return schema, ("abcdefghijkl" * 2)[:length]


def _number(rng: Random) -> tuple[dict[str, Any], Any]:
    schema: dict[str, Any] = {"type": rng.choice(("integer", "integer", "number"))}
    low = 0
    if rng.random() < 0.4:
        low = rng.choice((0, 1, 1, 10, -5, 100))
        schema["minimum"] = low
    if rng.random() < 0.25:
        schema["maximum"] = low + rng.choice((1, 10, 100))
    if schema["type"] == "number" and rng.random() < 0.4 and "maximum" not in schema:
        return schema, low + 0.5
    return schema, low if rng.random() < 0.5 else low + 1


def _array(rng: Random, depth: int) -> tuple[dict[str, Any], Any]:
    items, value = node(rng, depth + 1)
    schema: dict[str, Any] = {"type": "array", "items": items}
    count = rng.choice((0, 1, 1, 2))
    if rng.random() < 0.25:
        schema["minItems"] = max(count, 1)
        count = schema["minItems"]
    values = [value] * min(count, 1) if rng.random() < 0.5 or count < 2 else [value, value]
    if schema.get("minItems", 0) > len(values):
        values = [value] * schema["minItems"]
    if rng.random() < 0.12 and len(values) < 2:
        schema["uniqueItems"] = True
    return schema, values


def obj(rng: Random, depth: int, *, small: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an object schema and a value that is valid under it."""
    names = rng.sample(KEYS, rng.randint(1, 4 if small or depth else 8))
    properties: dict[str, Any] = {}
    value: dict[str, Any] = {}
    required = [name for name in names if rng.random() < 0.5]
    for name in names:
        properties[name], sample = node(rng, depth + 1)
        if rng.random() < 0.25:
            properties[name]["description"] = f"The {name} of the {rng.choice(KEYS)}."
        simple = not isinstance(sample, dict | list)
        if name in required or (simple and rng.random() < 0.2):
            value[name] = sample
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required and rng.random() < 0.95:
        schema["required"] = required if rng.random() < 0.7 else rng.sample(required, len(required))
    if rng.random() < 0.4:
        schema["additionalProperties"] = rng.random() < 0.15
    return schema, value


def node(rng: Random, depth: int) -> tuple[dict[str, Any], Any]:
    """Return a schema of any kind and a value that is valid under it."""
    kind = rng.random()
    if depth >= 3:
        kind *= 0.72
    if kind < 0.42:
        return _string(rng)
    if kind < 0.62:
        return _number(rng)
    if kind < 0.70:
        return {"type": "boolean"}, rng.random() < 0.6
    if kind < 0.73:
        first, value = _string(rng)
        return {"type": ["string", "null"]} if first.get("type") == "string" and len(
            first
        ) == 1 else first, value
    if kind < 0.86:
        return _array(rng, depth)
    return obj(rng, depth)


def _with_reference(rng: Random, schema: dict[str, Any]) -> None:
    """Move one property of `schema` into definitions, as real schemas do."""
    name = rng.choice(list(schema["properties"]))
    label = rng.choice(KEYS)
    schema.setdefault("definitions", {})[label] = schema["properties"][name]
    schema["properties"][name] = {"$ref": f"#/definitions/{label}"}


def document(rng: Random) -> tuple[str, str]:
    """Return the text of a schema and the text of a valid value."""
    schema, value = obj(rng, 0)
    top: Any = value
    shape = rng.random()
    if shape < 0.2:
        _with_reference(rng, schema)
    elif shape < 0.26:
        schema, top = {"type": "array", "items": schema}, [value]
    elif shape < 0.30:
        schema, top = _string(rng) if rng.random() < 0.7 else ({"type": "boolean"}, True)
    items = list(schema.items())
    if rng.random() < 0.5:
        items.insert(0, ("$schema", rng.choice(DRAFTS)))
    if rng.random() < 0.4:
        items.insert(rng.randint(0, len(items)), ("title", rng.choice(KEYS).capitalize()))
    if rng.random() < 0.3:
        rng.shuffle(items)
    schema = dict(items)
    if rng.random() < 0.2:
        schema = json.loads(json.dumps(schema, sort_keys=True))
    if isinstance(top, dict):
        order = [k for k in schema.get("properties", {}) if k in top]
        top = {k: top[k] for k in order}
    indent = rng.choice((None, None, 4, 2))
    separators = (",", ":") if indent is None and rng.random() < 0.5 else None
    return json.dumps(schema, indent=indent, separators=separators), json.dumps(top)
