"""Numbers of the report document as words: shared by the page, the Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

GLYPHS = {
    "admitted": "✓",
    "harm shown": "✗",
    "undecided": "?",
    "incomplete": "…",
    "exploratory": "~",
    "described": "·",
}
FIGURE_NAMES = {
    "output_tokens_per_s": "output tokens/s",
    "step_ms": "decode step, ms",
    "ttft_ms": "first token, ms",
    "e2e_ms": "end to end, ms",
}
NONE = "–"
MAX_M = 64
NO_OTHER_READING = "no other scorer version stored here disagrees"
NO_OTHER_SCORER = (
    "none is stored: only the declared scorers have scores here (evalharness rescore adds others)"
)
Row = Mapping[str, Any]


def never_observed(cell: Row) -> bool:
    """Whether one side of a contrast has no observed case: it was never run.

    A verdict of harm rests on what was seen, if only on answers without any log-probability.
    """
    if cell["verdict"] == "harm shown":
        return False
    if "table" not in cell:
        return cell["summary"] is None
    cases = sum(cell["table"].values())
    return cases in (cell["unobserved_control"], cell["unobserved_candidate"])


def shown_verdict(cell: Row) -> str:
    """Return a cell's verdict; "described" where no margin was declared that could decide it."""
    if never_observed(cell):
        return "incomplete"
    undecided = cell["verdict"] == "undecided" and cell["margin"] is None
    return "described" if undecided else str(cell["verdict"])


def counted(number: int, what: str) -> str:
    """Return a number with its noun: `1 cell`, `3 cells`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def rows_m(m: int) -> str:
    """Return a route's M; the counters keep everything above 64 together, as 65."""
    return f">{MAX_M}" if m > MAX_M else str(m)


def points(value: float | None) -> str:
    """Return a difference as signed points: 0.0469 -> +4.7."""
    return NONE if value is None else f"{100 * value:+.1f}"


def nats(value: float | None) -> str:
    """Return a signed value in nats to five decimals: finer differences decide nothing."""
    return NONE if value is None else f"{value:+.5f}"


def p_value(value: float | None) -> str:
    """Return a p-value with three significant digits, or <.0001."""
    if value is None:
        return NONE
    return "<.0001" if value < 1e-4 else f"{value:.3g}"


def interval(limits: Row | None) -> str:
    """Return an estimate with its limits: `1.048 (1.031, 1.066)`; without them, as it is."""
    if limits is None:
        return NONE
    estimate = f"{limits['estimate']:.4g}"
    if limits["lower"] is None or limits["upper"] is None:
        return f"{estimate} (no interval)"
    return f"{estimate} ({limits['lower']:.4g}, {limits['upper']:.4g})"


def _span(limits: Sequence[float | None] | None, write: Callable[[float], str]) -> str:
    """Return `(lower, upper)`; a dash where there is none, or where it has no width.

    Limits that differ but look alike get as many digits as tell them apart.
    """
    if limits is None or limits[0] is None or limits[1] is None or limits[0] >= limits[1]:
        return NONE
    lower, upper = limits[0], limits[1]
    texts = (write(lower), write(upper))
    if float(texts[0]) == float(texts[1]):
        texts = (f"{lower:+.3g}", f"{upper:+.3g}")
    return f"({texts[0]}, {texts[1]})"


def points_span(limits: Sequence[float | None] | None) -> str:
    """Return the limits of a share in points: (-4.7, +1.0)."""
    scaled = limits and [None if value is None else 100 * value for value in limits]
    return _span(scaled, lambda value: f"{value:+.1f}")


def nats_span(limits: Sequence[float | None] | None) -> str:
    """Return limits in nats: (-0.00012, +0.00031)."""
    return _span(limits, nats)


def tokens_span(limits: Sequence[float | None] | None) -> str:
    """Return limits in tokens: (-1.2, +0.4)."""
    return _span(limits, lambda value: f"{value:+.1f}")


def needed(row: Row) -> str:
    """Return the cases that an undecided cell would need by itself, and if what."""
    equal, observed = row["cases_needed_if_equal"], row["cases_needed_as_observed"]
    if equal is None:
        return NONE
    if not row["table"]["wins"] + row["table"]["losses"]:
        return f"{equal:,} ({observed:,} if none ever differs)"
    return f"{equal:,} if equal, {_as_observed(observed)}"


def _as_observed(cases: int | None) -> str:
    return "none would do as observed" if cases is None else f"{cases:,} as observed"


def arm_needed(arm: Row) -> str:
    """Return the cases that each undecided suite of an arm would need at each level."""
    parts = []
    for row in arm["cases_needed"]:
        name, equal = f"{row['suite']} {row['mode']}", row["if_equal"]
        if equal is None:
            parts.append(f"{name} unknown")
        elif row["suite"] == "nll":
            parts.append(f"{name} {equal:,}")
        elif row["none_differed"]:
            parts.append(f"{name} {equal:,} ({row['as_observed']:,} if none ever differs)")
        else:
            parts.append(f"{name} {equal:,} ({_as_observed(row['as_observed'])})")
    return f"per level: {', '.join(parts)}" if parts else NONE


def largest(summary: Row) -> str:
    """Return the largest delta of a summary, "" where a place has to be named with it."""
    extreme = summary["largest"]
    if extreme is None:
        return NONE
    if extreme["delta"] == 0:
        known = " that both sides have" if summary["nulls"] else ""
        return f"none: every token delta{known} is exactly zero"
    return nats(extreme["delta"])


def noise_span(document: Row) -> str:
    """Return between which shares of the control's own rate the A/A launch's cells lie."""
    aa = document["design"]["aa"]
    found = [
        row["tokens_ratio"]
        for row in document["throughput"]
        if row["arm"] == aa and row["tokens_ratio"] is not None
    ]
    return f"{min(found):.0%} and {max(found):.0%}" if found else ""
