"""A BFCL item as a chat completion with tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evalharness.bfcl.names import api_names
from evalharness.chat import chat_request, require_mode, require_template
from evalharness.types import Case, Request, RequestContext

MODES = ("tools",)
TEMPLATES = ("bfcl/1",)

# The documents' type words -> JSON Schema's, which the tools API takes.
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
# The official prompt adds this to every Python document's description.
_HINT = " Note that the provided function is in Python 3 syntax."


def to_request(case: Case, context: RequestContext) -> Request:
    """Return the request of a case. Raises ManifestError on an unknown mode or template."""
    require_mode(case, context, MODES)
    require_template(case, context, TEMPLATES)
    asked = json.loads(case.prompt)
    functions = json.loads(asked["functions"])
    names = api_names(document["name"] for document in functions)
    tools = [_tool(document, names[document["name"]]) for document in functions]
    return chat_request(
        case,
        context,
        messages=asked["messages"],
        fields={"tools": tools, "tool_choice": "auto"},
    )


def _tool(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    function = {
        "name": name,
        "description": document.get("description", "") + _HINT,
        "parameters": json_schema(document["parameters"]),
    }
    return {"type": "function", "function": function}


def json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document's schema with JSON Schema's type words, at every depth.

    Only `properties` and `items` hold schemas; a parameter may itself be called `type`.
    """
    result = dict(schema)
    declared = result.get("type")
    if isinstance(declared, str):
        result["type"] = _JSON_TYPES.get(declared, declared)
    if isinstance(result.get("properties"), dict):
        result["properties"] = {
            name: json_schema(member) for name, member in result["properties"].items()
        }
    if isinstance(result.get("items"), dict):
        result["items"] = json_schema(result["items"])
    return result
