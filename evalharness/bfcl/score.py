"""(case, response) -> Score, and vector rows -> verdict rows, for BFCL.

official/1: the verdict of bfcl-eval 2026.3.23 on a complete reply. Beyond it, and said in the
    reason: an unobserved reply is unobserved, a truncated one is wrong, and so are arguments
    with a duplicated name.
corrected/1: parallel calls by perfect matching; a malformed call on an irrelevance case is a
    call; golds that nothing can satisfy are excluded (`excluded:unpassable_gold`, and
    `detail.excluded`), not counted as wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from evalharness.bfcl.arguments import Calls, decode_calls
from evalharness.bfcl.checker import VALID, Document, Gold, judge
from evalharness.bfcl.gold import oracle_calls
from evalharness.bfcl.matching import perfect_match
from evalharness.bfcl.names import api_names
from evalharness.chat import Reply, Unobserved, make_score, read_reply
from evalharness.errors import ScoreError
from evalharness.types import Case, Response, Score

OFFICIAL, CORRECTED = "official/1", "corrected/1"
EXCLUDED = "excluded:unpassable_gold"
UNPARSED = "malformed_call:unparsed_markup"
# Openings of the call markup of vLLM's tool parsers: left in the text, it is a call that the
# server could not parse.
_MARKUP = ("<tool_call>", "<function=", "[TOOL_CALLS]", "<|tool_call", "<|python_tag|>")


@dataclass(frozen=True)  # no slots: cached_property keeps its value in __dict__
class Item:
    """What a verdict needs of a case. `golds` is None for (ir)relevance items."""

    category: str
    functions: Sequence[Document]
    golds: Sequence[Gold] | None

    @cached_property
    def unpassable(self) -> bool:
        """True when no calls at all satisfy the golds."""
        return self.golds is not None and oracle_calls(self.functions, self.golds) is None


@dataclass(frozen=True, slots=True)
class Seen:
    """A completely received reply: decoded calls, its text and why it ended."""

    calls: Calls
    content: str
    finish_reason: str | None


def official(item: Item, seen: Seen) -> str:
    """Return the official tag."""
    if seen.finish_reason == "length":
        return "truncated"
    calls = seen.calls
    if item.golds is None:
        return _relevance(item.category, called=calls.official_call)
    if calls.fault:
        return calls.fault
    return judge(item.category, functions=item.functions, golds=item.golds, calls=calls.calls)


def corrected(item: Item, seen: Seen) -> str:
    """Return the corrected tag."""
    if item.unpassable:
        return EXCLUDED
    if seen.finish_reason == "length":
        return "truncated"
    calls = seen.calls
    if item.golds is None:
        if calls.fault:
            return calls.fault
        if not calls.calls and any(mark in seen.content for mark in _MARKUP):
            return UNPARSED
        return _relevance(item.category, called=bool(calls.calls))
    if calls.fault:
        return calls.fault
    return judge(
        item.category,
        functions=item.functions,
        golds=item.golds,
        calls=calls.calls,
        match=perfect_match,
    )


_RULES: Mapping[str, Callable[[Item, Seen], str]] = {
    OFFICIAL: official,
    CORRECTED: corrected,
}


# Why the corrected reading differs; the numbers are those of docs/scoring-rules.md.
RULES = {
    "C1": "C1: parallel calls are matched perfectly, not first fit",
    "C2": "C2: a malformed call on an irrelevance case is a call",
    "C3": "C3: call markup that the server could not parse is a call",
    "C4": "C4: nothing can satisfy this gold: left out of the denominator",
}


def divergence(item: Item, seen: Seen, corrected_tag: str) -> dict[str, Any]:
    """Return what a corrected row keeps where the two readings differ: official tag and rule."""
    tag = official(item, seen)
    if corrected_tag == EXCLUDED:
        return {"official": tag, "rule": RULES["C4"], "excluded": True}
    if (tag == VALID) == (corrected_tag == VALID):
        return {}
    if corrected_tag == VALID:
        return {"official": tag, "rule": RULES["C1"]}
    markup = corrected_tag == UNPARSED
    return {"official": tag, "rule": RULES["C3" if markup else "C2"]}


def _relevance(category: str, *, called: bool) -> str:
    """Rule 14, and its opposite for the live_relevance items."""
    if "irrelevance" in category:
        return "irrelevance_error:decoder_success" if called else VALID
    return VALID if called else "relevance_error:decoder_failed"


@lru_cache(maxsize=4096)
def _case_item(prompt: str, expected: str) -> tuple[Item, Mapping[str, str]]:
    """Return a case's item and {API name: document name}; a run scores each case many times."""
    asked = json.loads(prompt)
    functions = json.loads(asked["functions"])
    names = api_names(document["name"] for document in functions)
    item = Item(asked["category"], functions, json.loads(expected)["gold"])
    return item, {api: name for name, api in names.items()}


def _scorer(name: str) -> Callable[[Case, Response], Score]:
    rule = _RULES[name]

    def score(case: Case, response: Response) -> Score:
        item, names = _case_item(case.prompt, case.expected)
        reply = read_reply(response)
        detail: dict[str, Any] = {"category": item.category}
        if not isinstance(reply, Reply):
            if name == CORRECTED and item.unpassable:
                detail |= {"excluded": True, "cause": reply.reason}
                reply = Unobserved(EXCLUDED, reply.output_tokens)
            return make_score(response, reply, correct=False, reason="", scorer=name, detail=detail)
        # A name that was not offered becomes None: it equals no document's name.
        raw = [
            (names.get(call.name) if isinstance(call.name, str) else None, call.arguments)
            for call in reply.calls
        ]
        detail["calls"] = len(raw)
        seen = Seen(decode_calls(raw), reply.content, reply.finish_reason)
        tag = rule(item, seen)
        if name == CORRECTED:
            detail |= divergence(item, seen, tag)
        return make_score(
            response, reply, correct=tag == VALID, reason=tag, scorer=name, detail=detail
        )

    return score


SCORERS = {name: _scorer(name) for name in _RULES}


def score_vector(row: Mapping[str, Any], scorer: str) -> dict[str, Any]:
    """Return the verdict row of a vector row.

    `calls[].arguments` may be an object or raw JSON text; `content` and `finish_reason` may be
    given. Names are compared with the documents as they are. Raises ScoreError where a field is
    missing or has the wrong type.
    """
    item, raw = _vector_item(row)
    content, finish_reason = row.get("content"), row.get("finish_reason")
    seen = Seen(decode_calls(raw), content if isinstance(content, str) else "", finish_reason)
    tag = _RULES[scorer](item, seen)
    return {
        "id": row.get("id"),
        "outcome": "correct" if tag == VALID else "wrong",
        "reason": tag,
        "scorer": scorer,
    }


def _vector_item(row: Mapping[str, Any]) -> tuple[Item, list[tuple[Any, Any]]]:
    category = _field(row, "category", str)
    functions = _field(row, "functions", list)
    # A row with the reply's text alone is a reply that made no call.
    calls = [] if row.get("calls") is None and "content" in row else _field(row, "calls", list)
    needs_gold = "relevance" not in category
    golds = _field(row, "gold", list) if needs_gold else None
    for call in calls:
        if not isinstance(call, dict):
            raise ScoreError(f"field calls: expected objects, found {type(call).__name__}")
    return Item(category, functions, golds), [
        (call.get("name"), call.get("arguments")) for call in calls
    ]


def _field(row: Mapping[str, Any], name: str, kind: type) -> Any:
    value = row.get(name)
    if not isinstance(value, kind):
        found = type(value).__name__ if name in row else "nothing"
        raise ScoreError(f"field {name}: expected {kind.__name__}, found {found}")
    return value
