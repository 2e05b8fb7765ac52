"""The verdicts as a table on a terminal; plain text elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evalharness.report.filters import GLYPHS, never_observed, shown_verdict
from evalharness.report.html import nll_chips
from evalharness.text import printable

STYLES = {
    "admitted": "bold blue",
    "harm shown": "bold red",
    "undecided": "bold",
    "described": "dim",
    "incomplete": "bold magenta",
    "exploratory": "bold yellow",
}


def print_verdicts(document: Mapping[str, Any], paths: Sequence[Path], stream: TextIO) -> None:
    """Print one line an arm, then arms x suites x concurrency, then where the report lies."""
    console = _console(stream)
    _print_arms(document, console)
    console.print()
    console.print(Text("correct/wrong/unobserved, then wins and losses against the control:"))
    console.print(count_table(document))
    if document["nll"]["cells"]:
        console.print()
        console.print(Text("mean NLL of the control's tokens, arm minus control, and tail share:"))
        console.print(nll_table(document))
    _print_paths(paths, stream)


def print_arms(document: Mapping[str, Any], paths: Sequence[Path], stream: TextIO) -> None:
    """Print one line an arm, then where the report lies."""
    _print_arms(document, _console(stream))
    _print_paths(paths, stream)


def _console(stream: TextIO) -> Console:
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 160
    return console


def _print_arms(document: Mapping[str, Any], console: Console) -> None:
    for reason in document["exploratory"]:
        console.print(Text(f"exploratory: {printable(reason)}"))
    verdicts = Table(box=None, pad_edge=False)
    for title in ("arm", "verdict", "why"):
        verdicts.add_column(title)
    for arm in document["arms"]:
        verdicts.add_row(
            Text(printable(arm["name"])), _verdict(arm["verdict"]), Text(printable(arm["reason"]))
        )
    console.print(verdicts)
    for arm in (document.get("speed") or {}).get("arms", []):
        console.print(Text(printable(f"speed of {arm['arm']}: {arm['sentence']}")))


def _print_paths(paths: Sequence[Path], stream: TextIO) -> None:
    for path in paths:
        # never wrapped: a path is there to be copied
        stream.write(f"{printable(str(path))}\n")


def _verdict(verdict: str) -> Text:
    return Text(f"{GLYPHS[verdict]} {verdict}", style=STYLES[verdict])


def nll_table(document: Mapping[str, Any]) -> Table:
    """Return mean delta and tail share with the verdict, arms and modes down, C across."""
    levels = document["design"]["concurrency"]
    table = Table(box=None, pad_edge=False)
    for title in ("arm", "mode", *(f"C{level}" for level in levels)):
        table.add_column(title, no_wrap=True)
    modes = dict.fromkeys(row["mode"] for row in document["nll"]["cells"])
    for arm in document["design"]["arms"]:
        for mode in modes:
            found = {chip["concurrency"]: chip for chip in nll_chips(document, arm=arm, mode=mode)}
            if found:
                cells = (_nll_cell(found.get(level)) for level in levels)
                table.add_row(Text(printable(arm)), Text(printable(f"nll {mode}")), *cells)
    return table


def _nll_cell(chip: Mapping[str, Any] | None) -> Text:
    if chip is None:
        return Text("–")
    text = Text(" ".join(part for part in (chip["text"], chip["flips"]) if part))
    if chip["verdict"]:
        text.append(" ").append(GLYPHS[chip["verdict"]], style=STYLES[chip["verdict"]])
    return text


def count_table(document: Mapping[str, Any]) -> Table:
    """Return correct/wrong/unobserved with wins and losses, arms and suites down, C across."""
    levels = document["design"]["concurrency"]
    table = Table(box=None, pad_edge=False)
    for title in ("arm", "suite", *(f"C{level}" for level in levels)):
        table.add_column(title, no_wrap=True)
    cells = {(c["arm"], c["suite"], c["mode"], c["concurrency"]): c for c in document["cells"]}
    rows: dict[tuple[str, str, str], dict[int, Text]] = {}
    for row in document["counts"]:
        key = (row["arm"], row["suite"], row["mode"])
        cell = cells.get((*key, row["concurrency"]))
        text = Text(f"{row['correct']}/{row['wrong']}/{row['unobserved']}")
        if cell:
            flips = f"+{cell['table']['wins']} −{cell['table']['losses']} "
            text.append(" " if never_observed(cell) else f" {flips}")
            shown = shown_verdict(cell)
            text.append(GLYPHS[shown], style=STYLES[shown])
        rows.setdefault(key, {})[row["concurrency"]] = text
    for (arm, suite, mode), by_level in rows.items():
        table.add_row(
            Text(printable(arm)),
            Text(printable(f"{suite} {mode}")),
            *(by_level.get(level, Text("–")) for level in levels),
        )
    return table
