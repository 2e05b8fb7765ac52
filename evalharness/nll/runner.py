"""Which model runner served: said by the processor in the server's log."""

from __future__ import annotations

import re

# The second half is in vLLM's own words, which the server's facts are read by.
_WORDS = {"v1": "using the V1 model runner", "v2": "Using V2 Model Runner"}
_LINE = re.compile(r"evalharness: ForcedTokens loaded \((v1|v2)\)")


def announcement(runner: str) -> str:
    """Return the line the processor writes when a runner builds it."""
    return f"evalharness: ForcedTokens loaded ({runner}), {_WORDS[runner]}"


def runner_of_log(log: str) -> str | None:
    """Return "v1" or "v2" from a server's log; None where the processor was never built.

    Two different answers in one log give None: then it is not known which one served.
    """
    found = set(_LINE.findall(log))
    return found.pop() if len(found) == 1 else None
