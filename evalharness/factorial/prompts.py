"""Were all arms given the same prompt? Compared by token ids where a server returns them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalharness.lenient_json import loads
from evalharness.sse import events
from evalharness.store import iter_responses
from evalharness.types import CellKey, Response, canonical_json, sha256_hex

_IDS = "prompt_token_ids"


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """One prompt as a server saw it: its token count and, where told, the digest of its ids."""

    tokens: int | None
    ids_sha256: str | None


@dataclass(slots=True)
class CellTotals:
    """Sums over a stored cell, and what each case's prompt was."""

    rows: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    prompts: dict[str, PromptFacts] = field(default_factory=dict)


def read_back(responses: Path) -> CellTotals:
    """Read a finished cell from disk, verifying every line. Raises StoreError."""
    totals = CellTotals()
    for stored in iter_responses(responses):
        totals.rows += 1
        usage = loads(stored.response.usage or "{}") or {}
        prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
        totals.prompt_tokens += prompt if type(prompt) is int else 0
        totals.output_tokens += output if type(output) is int else 0
        if stored.response.status == "ok":
            facts = PromptFacts(prompt if type(prompt) is int else None, _ids(stored.response))
            totals.prompts[stored.response.case_id] = facts
    return totals


def _ids(response: Response) -> str | None:
    if _IDS not in response.body:
        return None
    texts = events(response.body) if response.chunk_ns else [response.body]
    for text in texts:
        found = _find(loads(text))
        if found is not None:
            return sha256_hex(canonical_json(found))
    return None


def _find(value: Any) -> list[int] | None:
    if not isinstance(value, dict):
        return None
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    for holder in (value, first):
        ids = holder.get(_IDS) if isinstance(holder, dict) else None
        if isinstance(ids, list) and all(type(token) is int for token in ids):
            return ids
    return None


class PromptBook:
    """The first arm's prompt of each suite, mode and case, which every other arm must repeat."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str], tuple[str, PromptFacts]] = {}

    def compare(self, key: CellKey, prompts: dict[str, PromptFacts]) -> str:
        """Return the first difference as text, or an empty string."""
        for case_id, facts in prompts.items():
            place = (key.suite, key.mode, case_id)
            arm, first = self._first.setdefault(place, (key.arm, facts))
            if _differ(first.tokens, facts.tokens) or _differ(first.ids_sha256, facts.ids_sha256):
                return (
                    f"case {case_id}: the prompt has {facts.tokens} tokens here and "
                    f"{first.tokens} in arm {arm}, or other token ids; the arms do not tokenize "
                    "alike, so they cannot be compared"
                )
        return ""


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other
