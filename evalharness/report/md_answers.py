"""What differs under the verdicts, as Markdown: token log-probabilities and answers' texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalharness.report.filters import NONE, largest, never_observed, p_value, shown_verdict
from evalharness.report.md_text import badge, code, plain, table
from evalharness.verdicts.nll_measured import MIN_CASES

Row = Mapping[str, Any]


def nll_lines(document: Row) -> list[str]:
    """Return every NLL cell: its verdict, both halves with what they rest on, and the A/A's."""
    rows = [
        [
            plain(cell["arm"]),
            f"{plain(cell['mode'])} C{cell['concurrency']}",
            badge(shown_verdict(cell)),
            *_halves(cell),
            _largest(cell["summary"]) if cell["summary"] else NONE,
            f"{cell['aa']['estimate']:+.3g}, {_percent(cell['aa'])}" if cell["aa"] else NONE,
            NONE if cell["cases_needed"] is None else f"{cell['cases_needed']:,}",
        ]
        for cell in document["nll"]["cells"]
    ]
    if not rows:
        return []
    head = [
        "Arm", "NLL mode", "Verdict", "Mean, nats/token (p)", "Moved by over",
        "More than A/A (upper; p)", "Changed: p", "Largest", "A/A mean, moved", "Cases needed",
    ]  # fmt: skip
    return [
        *table(head, rows),
        "Moved by over: the share of tokens whose log-probability moved by more than so many nats. "
        "(p): of a change as large as the margin; small passes. Changed: p of no change at all, "
        "over what is not shown equivalent, adjusted for all contrasts; harm shown needs a small "
        "one, not an excess over the margin. Where no token moved, the tail's bound and its cases "
        "needed assume one moved token in a case that moves.",
        "",
    ]


def _percent(summary: Row) -> str:
    return f"{100 * summary['tail_share']:.3g}%"


def _halves(cell: Row) -> list[str]:
    """Return mean, share moved, excess over A/A, and p of any change."""
    summary, judged = cell["summary"], cell["margin"] is not None
    mean = moved = more = NONE
    if summary:
        mean = f"{summary['estimate']:+.3g}" + (f" ({_p_mean(cell)})" if judged else "")
        moved = f"{summary['tail_nats']:g}: {_percent(summary)}"
    if not judged or never_observed(cell):
        return [mean, moved, NONE, NONE]
    if cell["tail_excess"] is not None:
        excess, upper = 100 * cell["tail_excess"], 100 * cell["tail_upper"]
        more = f"{excess:+.3g} points ({upper:.3g}; {p_value(cell['p_tail'])})"
    return [mean, moved, more, p_value(cell["p_harm_adjusted"])]


def _p_mean(cell: Row) -> str:
    tested = cell["summary"]["cases"] >= MIN_CASES
    return p_value(cell["p_mean"]) if tested else f"not tested: under {MIN_CASES} cases"


def _largest(summary: Row) -> str:
    extreme = summary["largest"]
    if not extreme or extreme["delta"] == 0:
        return largest(summary)
    return f"{largest(summary)} at {code(extreme['case_id'])}, token {extreme['position']}"


def text_lines(document: Row) -> list[str]:
    """Return how many answers read differently from the control's, whatever their scores are."""
    levels = document["design"]["concurrency"]
    found: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for row in document["first_difference"]:
        by_level = found.setdefault((row["arm"], f"{row['suite']} {row['mode']}"), {})
        differ, compared = by_level.get(row["concurrency"], (0, 0))
        differ += row["compared"] - row["identical"]
        by_level[row["concurrency"]] = (differ, compared + row["compared"])
    if not found:
        return []
    rows = [
        [plain(arm), plain(suite), *(_of(by_level.get(level)) for level in levels)]
        for (arm, suite), by_level in found.items()
    ]
    opening = ["<details><summary>Answers whose text differs from the control's</summary>", ""]
    head = ["Arm", "Suite", *(f"C{level}" for level in levels)]
    return [*opening, *table(head, rows), "</details>", ""]


def _of(pair: tuple[int, int] | None) -> str:
    return f"{pair[0]} of {pair[1]}" if pair and pair[1] else NONE
