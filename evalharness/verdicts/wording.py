"""The sentences of a cell's verdict: what was found, at which margin, and what it would take."""

from __future__ import annotations

from evalharness.verdicts.cell_types import Discordance, Underlying
from evalharness.verdicts.gate import Counts
from evalharness.verdicts.measured import Measured
from evalharness.verdicts.types import AaCheck


def points(share: float) -> str:
    """Return a share of cases as points: 0.05 -> "5 points"."""
    text = f"{100 * share:.2f}".rstrip("0").rstrip(".")
    return f"{text} point" if text == "1" else f"{text} points"


def p_text(p: float) -> str:
    """Return a p-value as text: 0.00001 -> "p <0.0001"."""
    return "p <0.0001" if p < 1e-4 else f"p {p:.4f}"


def need_text(equal: int | None, as_seen: int | None, *, counts: Counts, n: int) -> str:
    """Return how many cases would be needed and on which assumption, or an empty text.

    `counts`: what the number rests on (replays scaled); `n`: the cases asked.
    """
    if equal is None:
        return ""
    differ = counts.wins + counts.losses
    if not differ:
        return (
            f"; 80% power in this cell alone needs about {equal} cases if 1 case in {counts.n} "
            f"differs by chance (assumed: none of {counts.n} did); if none ever differs, "
            f"{as_seen} cases pass (here {n})"
        )
    seen = f"about {as_seen}" if as_seen is not None else "no number would do"
    return (
        f"; 80% power in this cell alone needs about {equal} cases if {differ} in {counts.n} "
        f"differ by chance and the arms are equal, {seen} if they differ as observed (here {n})"
    )


def never_right(table: Discordance) -> bool:
    """Whether the control has no case right that an arm could lose."""
    return table.both_right + table.losses == 0


def floor_text(where: str) -> str:
    """Return what takes the worth from an admission: no case was there to be lost."""
    return f" ({where}: the control is right in none, no loss could show)"


def _seen(m: Measured) -> str:
    """Return the wins and losses, and which of them nobody saw."""
    table = m.pair.discordance()
    hidden = m.pair.unobserved
    text = f"{table.wins} wins, {table.losses} losses in {table.n}"
    if not hidden.any():
        return text
    return f"{text}; {int(hidden.sum())} of {hidden.size} unobserved, counted against the arm"


def cell_reason(
    m: Measured, verdict: Underlying, *, alpha: float, aa: AaCheck | None, need: str
) -> str:
    seen = _seen(m)
    if m.margin is None:
        return f"no margin declared for {m.table.suite}: described, not judged ({seen})"
    at = f"{p_text(m.worst.p)} at {points(m.margin)}, alpha {alpha:g} ({seen})"
    if verdict == "harm shown":
        return f"losses outnumber wins beyond chance, and the margin is not held: {at}"
    if verdict == "incomplete" and m.worst.p <= alpha and aa is not None:
        return f"the margin is held ({at}), but the A/A launch is incomplete: {aa.reason}"
    if verdict == "incomplete":
        hidden = int(m.pair.unobserved.sum())
        return f"{hidden} unobserved cases could change the verdict: worst case {at}"
    if verdict == "undecided" and m.worst.p <= alpha and aa is not None:
        return f"the margin is held ({at}), but {aa.reason}: nobody is admitted here"
    if verdict == "undecided":
        return f"a loss of {points(m.margin)} is not excluded: {at}{need}"
    excluded = f"a loss of {points(m.margin)} or more is excluded: {at}"
    where = f"{m.table.suite}.{m.table.mode} C{m.table.concurrency}"
    return excluded + (floor_text(where) if never_right(m.pair.discordance()) else "")


def cell_notes(
    m: Measured, verdict: Underlying, *, alpha: float, aa: AaCheck | None
) -> tuple[str, ...]:
    notes: list[str] = []
    if verdict == "admitted" and m.harm_worst <= alpha:
        notes.append("admitted, with a real loss inside the margin")
    if aa is None:
        notes.append("no A/A launch was declared: the server's own noise is unknown here")
    elif aa.failed and verdict == "harm shown":
        notes.append(f"the A/A launch fails here too: {aa.reason}")
    if m.table.replays > 1:
        notes.append(
            f"{m.table.replays} replays of each case, scaled by their design effect; "
            "they are not further cases"
        )
    return tuple(notes)
