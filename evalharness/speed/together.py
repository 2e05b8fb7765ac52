"""Speed beside quality: one sentence an arm, from its claims and its quality verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from evalharness.speed.contrasts import Contrast

Direction = Literal["faster", "slower", "mixed", "none"]
NOTHING = "no difference in speed shown"


@dataclass(frozen=True, slots=True)
class ArmSpeed:
    """What can be said of an arm: `sentence` joins `speed` with the quality verdict."""

    direction: Direction
    speed: str
    sentence: str


def arm_speed(levels: Mapping[int, Contrast], verdict: str) -> ArmSpeed:
    """Return the sentence of an arm.

    levels: its contrast in output tokens per second at each concurrency. verdict: its quality
    verdict, in the report's words.
    """
    claimed = {c: one for c, one in levels.items() if one.claim != "none"}
    directions = {one.claim for one in claimed.values()}
    if not claimed:
        return ArmSpeed("none", NOTHING, f"{NOTHING}; {verdict}")
    parts = [part for direction in ("faster", "slower") if (part := _part(claimed, direction))]
    silent = [f"C{c}" for c in levels if c not in claimed]
    speed = ", ".join(parts)
    direction: Direction = "mixed"
    if len(directions) == 1:
        direction = "faster" if "faster" in directions else "slower"
    # "and" where both halves speak for the arm, or both against it
    agree = (direction == "faster") == (verdict == "admitted") and direction != "mixed"
    sentence = f"{speed} {'and' if agree else 'but'} {verdict}"
    if silent:
        sentence += f"; no difference shown at {', '.join(silent)}"
    return ArmSpeed(direction, speed, sentence)


def _part(claimed: Mapping[int, Contrast], direction: str) -> str:
    """Return `faster by 3.1% to 4.8% at C4, C16`, "" where no level goes that way."""
    found = {
        c: abs(one.ratio.estimate - 1) * 100
        for c, one in claimed.items()
        if one.claim == direction and one.ratio is not None
    }
    if not found:
        return ""
    low, high = f"{min(found.values()):.1f}%", f"{max(found.values()):.1f}%"
    size = low if low == high else f"{low} to {high}"
    return f"{direction} by {size} at {', '.join(f'C{c}' for c in found)}"
