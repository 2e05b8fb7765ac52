"""What the C streams of a trace ask for: prompts of words that differ, outputs of forced length."""

from __future__ import annotations

from dataclasses import dataclass

from evalharness.types import canonical_json

WORDS = (
    "harbour", "keel", "lantern", "rope", "tide", "anchor", "ballast", "crew", "deck", "engine",
    "ferry", "gale", "hull", "island", "jetty", "knot", "ledger", "mast", "north", "oar", "pilot",
    "quay", "rudder", "sail", "timber", "vessel", "wharf", "yard", "signal", "current",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """What to drive: C streams; `confirm` and `outputs` count outputs of every stream.

    prompt_words: length of each stream's prompt; prompts differ from their first word on.
    timeout_s: for the whole of it.
    """

    model: str
    concurrency: int
    confirm: int
    outputs: int
    prompt_words: int
    timeout_s: float

    @property
    def max_tokens(self) -> int:
        """Outputs asked of each stream: it must not end while the profile starts and stops."""
        return self.confirm + 4 * self.outputs + 256


def prompt(stream: int, words: int) -> str:
    """Return stream number `stream`'s prompt: the same at every call, different for each stream."""
    picked = [WORDS[(stream * 7 + step * (stream % 5 + 1)) % len(WORDS)] for step in range(words)]
    return " ".join([f"Report {stream}:", *picked])


def body(asked: Asked, stream: int) -> str:
    """Return the request of one stream: greedy, of forced length, one event an output."""
    return canonical_json(
        {
            "model": asked.model,
            "prompt": prompt(stream, asked.prompt_words),
            "max_tokens": asked.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "return_token_ids": True,
        }
    )
