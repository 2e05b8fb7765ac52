"""Which model runner served: said by the processor in the server's log, compared across arms."""

from __future__ import annotations

import re
from collections.abc import Mapping

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


def runners_disagree(runners: Mapping[str, str | None]) -> str:
    """Return why the arms' runners forbid a comparison of forced decode, "" where they agree.

    runners: arm or launch name -> "v1", "v2" or None (not known).
    """
    unknown = sorted(name for name, runner in runners.items() if runner is None)
    if unknown:
        return f"model runner not known for {', '.join(unknown)}"
    if len(set(runners.values())) > 1:
        told = ", ".join(f"{name}: {runner}" for name, runner in sorted(runners.items()))
        return f"arms were served by different model runners ({told})"
    return ""
