"""A schema as a chat request: in the prompt, or also enforced by `response_format`."""

from __future__ import annotations

import json
from typing import Any

from evalharness.chat import chat_request, require_mode, require_template
from evalharness.types import Case, Request, RequestContext

MODES = ("prompt", "response_format")
TEMPLATES = ("schema/1",)

INSTRUCTION = (
    "Write one JSON value that is valid under this JSON Schema. Answer with the JSON alone."
)


def to_request(case: Case, context: RequestContext) -> Request:
    """Return the request of a case. Raises ManifestError on an unknown mode or template.

    Both modes ask in the same words, so that they differ in the enforcement alone.
    """
    require_mode(case, context, MODES)
    require_template(case, context, TEMPLATES)
    asked = json.loads(case.prompt)
    task = f"{asked['task']}\n\n" if asked["task"] else ""
    message = {"role": "user", "content": f"{task}{INSTRUCTION}\n\n{asked['schema']}"}
    fields: dict[str, Any] = {}
    if context.mode == "response_format":
        fields["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": json.loads(asked["schema"])},
        }
    return chat_request(case, context, messages=[message], fields=fields)
