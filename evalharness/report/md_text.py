"""Text from outside as Markdown that it cannot leave, and Markdown's tables."""

from __future__ import annotations

from collections.abc import Sequence

from evalharness.report.filters import GLYPHS
from evalharness.text import printable

SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_{}[]()<>#+!|~&@$"})


def plain(text: object) -> str:
    """Return text that Markdown shows literally, on one line."""
    return printable(str(text)).replace("\n", " ").translate(SPECIAL)


def code(text: object) -> str:
    """Return text as an inline code span that it cannot leave."""
    inside = printable(str(text)).replace("\n", " ").replace("`", "'").replace("|", "¦")
    return f"`{inside}`"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table's lines; the cells are escaped already."""
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]


def badge(verdict: str) -> str:
    """Return a verdict with its glyph, bold."""
    return f"**{GLYPHS[verdict]} {verdict}**"
