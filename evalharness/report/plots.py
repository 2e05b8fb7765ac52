"""The report's pictures, drawn from the report document alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from evalharness.report.svg import SETTINGS, inline_svg
from evalharness.text import printable

# Blue against vermilion, told apart by readers of every colour vision; shapes repeat it.
COLOURS = {
    "admitted": "#0061a8",
    "harm shown": "#b84500",
    "undecided": "#5b6470",
    "incomplete": "#8a3f73",
    "exploratory": "#806000",
}
MARKERS = {
    "admitted": "o",
    "harm shown": "X",
    "undecided": "s",
    "incomplete": "^",
    "exploratory": "D",
}
LINES = ("-", "--", "-.", ":")
# Narrow, so that labels stay readable where a phone shrinks the picture to its width.
WIDTH_IN = 4.9
LEGEND: dict[str, Any] = {
    "loc": "outside upper center",
    "ncols": 4,
    "frameon": False,
    "fontsize": 7,
}
Row = Mapping[str, Any]


def new_figure(height_in: float) -> Figure:
    """Return an empty figure in the report's style; every picture has the same width."""
    with matplotlib.rc_context(SETTINGS):
        return Figure(figsize=(WIDTH_IN, height_in), layout="constrained")


def forest_plots(document: Mapping[str, Any]) -> Iterator[tuple[str, Markup]]:
    """Yield (arm, picture): paired differences in points with intervals and margins."""
    for number, arm in enumerate(document["arms"]):
        cells = [cell for cell in document["cells"] if cell["arm"] == arm["name"]]
        if cells:
            name = printable(arm["name"])
            description = "; ".join(_forest_words(cell) for cell in cells)
            yield (
                arm["name"],
                inline_svg(
                    _forest(cells, document["design"]["alpha"], _reach(document["cells"])),
                    name=f"forest-{number}",
                    title=f"Paired differences, {name} minus control, in points",
                    description=description,
                ),
            )


def _forest_words(cell: Row) -> str:
    return (
        f"{cell['suite']} {cell['mode']} C{cell['concurrency']}: {cell['verdict']}, "
        f"{100 * cell['estimate']:+.1f} ({100 * cell['lower']:+.1f} to {100 * cell['upper']:+.1f})"
    )


def _reach(cells: Sequence[Row]) -> tuple[float, float]:
    """Return one x axis for all arms, in points, so that the pictures compare."""
    low = min(min(c["lower"], -(c["margin"] or 0.0)) for c in cells)
    high = max(max(c["upper"], 0.0) for c in cells)
    room = 0.05 * (high - low)
    return 100 * (low - room), 100 * (high + room)


def _forest(cells: Sequence[Row], alpha: float, reach: tuple[float, float]) -> Figure:
    with matplotlib.rc_context(SETTINGS):
        figure = new_figure(0.8 + 0.22 * len(cells))
        axes = figure.subplots()
        axes.set_xlim(*reach)
        axes.axvline(0, color="#8a8f98", linewidth=1, zorder=1)
        for y, cell in enumerate(cells):
            _forest_row(axes, y, cell)
        labels = [printable(f"{c['suite']} {c['mode']}  C{c['concurrency']}") for c in cells]
        axes.set_yticks(range(len(cells)), labels)
        axes.set_ylim(len(cells) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color="#e4e7eb", linewidth=0.6)
        axes.set_axisbelow(True)
        confidence = 100 * (1 - 2 * alpha)
        axes.set_xlabel(f"difference in points ({confidence:g}% interval), left is worse")
        right = axes.secondary_yaxis("right")
        right.set_yticks(
            range(len(cells)),
            [f"+{c['table']['wins']} −{c['table']['losses']}" for c in cells],
        )
        right.tick_params(length=0)
        right.spines["right"].set_visible(False)
    return figure


def _forest_row(axes: Any, y: int, cell: Row) -> None:
    colour = COLOURS[cell["verdict"]]
    low, high, middle = (100 * cell[k] for k in ("lower", "upper", "estimate"))
    axes.plot([low, high], [y, y], color=colour, linewidth=1.8, solid_capstyle="butt", zorder=3)
    face = colour if cell["gate"] else "white"
    axes.plot(
        [middle], [y], MARKERS[cell["verdict"]], color=colour, markerfacecolor=face,
        markersize=6, zorder=4,
    )  # fmt: skip
    if cell["margin"] is not None:
        edge = -100 * cell["margin"]
        axes.plot([edge, edge], [y - 0.42, y + 0.42], color="#1d2127", linewidth=1.6, zorder=2)
    if cell["aa"] is not None:
        aa = cell["aa"]
        pairs = sum(aa[k] for k in ("both_right", "wins", "losses", "both_wrong"))
        noise = 100 * (aa["wins"] - aa["losses"]) / pairs if pairs else 0.0
        axes.plot([noise], [y + 0.3], "|", color="#8a8f98", markersize=5, zorder=2)


def delta_plots(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Markup]]:
    """Yield (arm, mode, picture): tails of the token deltas beside the A/A launch's."""
    rows = document["nll"]["deltas"]
    aa = document["design"]["aa"]
    modes = sorted({(row["suite"], row["mode"]) for row in rows})
    for number, (arm, (suite, mode)) in enumerate(
        (arm["name"], mode) for arm in document["arms"] for mode in modes
    ):
        own = [r for r in rows if (r["arm"], r["suite"], r["mode"]) == (arm, suite, mode)]
        floor = [r for r in rows if (r["arm"], r["suite"], r["mode"]) == (aa, suite, mode)]
        margin = next((m for m in document["design"]["nll_margins"] if m["mode"] == mode), None)
        if own:
            words = "; ".join(_tail_words(row) for row in (*own, *floor))
            yield (
                arm,
                f"{suite}.{mode}",
                inline_svg(
                    _tails(own, floor, margin),
                    name=f"tail-{number}",
                    title=f"Share of tokens whose NLL moved by more than x nats, {printable(arm)}",
                    description=words,
                ),
            )


def _tail_words(row: Row) -> str:
    quantiles = row["quantiles"]
    return (
        f"{row['arm']} C{row['concurrency']}: {row['tokens']} tokens, "
        f"{100 * row['zero_share']:.1f}% unmoved, 1% and 99% quantiles "
        f"{quantiles['0.01']:+.2g} and {quantiles['0.99']:+.2g} nats"
    )


def _tails(own: Sequence[Row], floor: Sequence[Row], margin: Row | None) -> Figure:
    with matplotlib.rc_context(SETTINGS):
        figure = new_figure(3.0)
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, side in ((left, "below"), (right, "above")):
            for line, row in enumerate(floor):
                _tail_line(
                    axes, row, side=side, colour="#9aa0a8", style=LINES[line % 4], label="A/A"
                )
            for line, row in enumerate(own):
                _tail_line(
                    axes, row, side=side, colour="#0061a8", style=LINES[line % 4], label="arm"
                )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.xaxis.set_major_locator(FixedLocator([1e-4, 1e-2, 1]))
            axes.yaxis.set_major_locator(FixedLocator([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1]))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:g}%"))
            axes.minorticks_off()
            axes.set_xlim(own[0]["grid"][0], own[0]["grid"][-1])
            if not any(any(row[side]) for row in (*own, *floor)):
                axes.text(0.5, 0.5, "no token", transform=axes.transAxes, ha="center")
            axes.set_ylim(0.5 / max(row["tokens"] for row in own), 1.2)
            axes.grid(color="#e4e7eb", linewidth=0.6)
            axes.set_axisbelow(True)
            if margin is not None:
                axes.axvline(margin["tail_nats"], color="#b84500", linewidth=1, linestyle=":")
        left.invert_xaxis()
        left.set_xlabel("likelier by more than (nats)")
        right.set_xlabel("less likely by more than (nats)")
        left.set_ylabel("share of tokens")
        figure.legend(*right.get_legend_handles_labels(), **LEGEND)
    return figure


def _tail_line(axes: Any, row: Row, *, side: str, colour: str, style: str, label: str) -> None:
    points = [(x, y) for x, y in zip(row["grid"], row[side], strict=True) if y > 0]
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=colour,
        linestyle=style,
        linewidth=1.5,
        label=f"{label} C{row['concurrency']}",
    )


def load_plot(document: Mapping[str, Any]) -> Markup | None:
    """Return the picture of concurrency reached as a share of what was asked, by level."""
    rows = [row for row in document["concurrency"] if row["reached_share"] is not None]
    if not rows:
        return None
    levels = sorted({row["concurrency"] for row in rows})
    with matplotlib.rc_context(SETTINGS):
        figure = new_figure(0.8 + 0.4 * len(levels))
        axes = figure.subplots()
        axes.axvline(80, color="#b84500", linewidth=1, linestyle=":")
        for number, row in enumerate(rows):
            share = 100 * row["reached_share"]
            # a fixed scatter keeps dots of one level apart without inventing data
            y = levels.index(row["concurrency"]) + 0.5 * ((number * 7 % 11) / 10 - 0.5)
            mark, colour = ("X", "#b84500") if share < 80 else ("o", "#0061a8")
            if not row["can_fill"]:
                mark, colour = "s", "#9aa0a8"
            axes.plot([share], [y], mark, markersize=5, alpha=0.7, color=colour, markeredgewidth=0)
        axes.set_yticks(range(len(levels)), [f"C{level}" for level in levels])
        axes.set_ylim(len(levels) - 0.4, -0.6)
        axes.set_xlim(0, 105)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color="#e4e7eb", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel("requests really in flight, percent of C, one dot a cell")
    return inline_svg(
        figure,
        name="load",
        title="Concurrency really reached",
        description=_load_words(document["concurrency"], rows),
    )


def _load_words(every: Sequence[Row], measured: Sequence[Row]) -> str:
    filled = [row for row in measured if row["can_fill"]]
    words = f"{len(measured)} of {len(every)} cells are measurable"
    if not filled:
        return f"{words}; none has cases enough to keep C in flight."
    smallest = min(filled, key=lambda row: float(row["reached_share"]))
    return (
        f"{words}; of those with cases enough the lowest is {smallest['reached_share']:.0%} of "
        f"C{smallest['concurrency']} ({smallest['arm']}, {smallest['suite']})."
    )
