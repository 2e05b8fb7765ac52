"""What tool-call rows share: the call's text, the row's shape, and how a refusal is worded."""

from __future__ import annotations

import json
from random import Random
from typing import Any

# What the function-calling suite's requests add to every description.
HINT = " Note that the provided function is in Python 3 syntax."
REFUSALS = (
    "None of the functions fits this question.",
    "I cannot answer that with the functions given.",
    "No function here can do that.",
    "The given functions do not cover this request.",
)


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """Return one call in the form that the served template and its parser use."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def call_row(
    rng: Random, documents: list[dict[str, Any]], question: str, answer: str
) -> dict[str, Any]:
    """Return a chat row with the functions in random order."""
    shown = list(documents)
    rng.shuffle(shown)
    return {
        "tools": [{"type": "function", "function": document} for document in shown],
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ],
    }
