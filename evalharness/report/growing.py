"""Always-valid verdicts as JSON, a page with the evidence's path, and Markdown."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup

from evalharness.report.files import Renderer, render_json, write_files
from evalharness.report.html import render_page
from evalharness.report.md_text import badge, plain, table
from evalharness.report.plots import COLOURS, new_figure
from evalharness.report.svg import SETTINGS, inline_svg
from evalharness.text import printable

READING = (
    "Evidence may be looked at as often as one likes, after every batch of new cases; it must "
    "reach 1/alpha once. It never shows harm. Every run of new cases has to be given: leaving "
    "one out for its result is no longer valid."
)


def write_growing(
    document: Mapping[str, Any], folder: Path, formats: Collection[str]
) -> list[Path]:
    """Write the always-valid verdicts in each format, return the paths."""
    renderers: dict[str, tuple[str, Renderer]] = {
        "html": ("index.html", render_growing_html),
        "md": ("growing.md", render_growing_markdown),
        "json": ("growing.json", render_json),
    }
    return write_files(document, folder, {k: v for k, v in renderers.items() if k in formats})


def render_growing_html(document: Mapping[str, Any]) -> str:
    """Return the page of always-valid verdicts."""
    pictures = [(arm["name"], _paths(document, arm["name"], n)) for n, arm in _numbered(document)]
    return render_page("growing.html.j2", doc=document, reading=READING, pictures=pictures)


def _numbered(document: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    return list(enumerate(document["arms"]))


def _paths(document: Mapping[str, Any], arm: str, number: int) -> Markup:
    cells = [cell for cell in document["cells"] if cell["arm"] == arm]
    with matplotlib.rc_context(SETTINGS):
        figure = new_figure(2.8)
        axes = figure.subplots()
        axes.set_yscale("log")
        for cell in cells:
            name = printable(f"{cell['suite']} {cell['mode']} C{cell['concurrency']}")
            axes.plot(*zip(*cell["path"], strict=True), linewidth=1.3, label=name)
        axes.axhline(1 / document["alpha"], color=COLOURS["admitted"], linestyle="--")
        axes.set_xlabel("new cases")
        axes.set_ylabel("evidence (dashed: 1/alpha)")
        if cells:
            axes.legend(frameon=False, fontsize=7)
    words = "; ".join(
        f"{c['suite']} C{c['concurrency']}: {c['e_value']:.3g} after {c['cases']} cases"
        for c in cells
    )
    return inline_svg(
        figure,
        name=f"growing-{number}",
        title=f"Evidence that {printable(arm)} loses less than the margin",
        description=printable(words),
    )


def render_growing_markdown(document: Mapping[str, Any]) -> str:
    """Return the always-valid verdicts for a pull request."""
    headline = document["headline"]
    arms = [[plain(a["name"]), badge(a["verdict"]), plain(a["reason"])] for a in document["arms"]]
    cells = [
        [
            plain(c["arm"]),
            plain(f"{c['suite']} {c['mode']} C{c['concurrency']}"),
            f"{100 * c['margin']:g}",
            str(c["cases"]),
            f"{c['e_value']:.3g} of {c['threshold']:g}",
            str(c["admitted_at"] or "–"),
        ]
        for c in document["cells"]
    ]
    parts = [
        f"# {badge(headline['verdict'])} - {plain(headline['sentence'])}",
        "",
        *(f"> exploratory: {plain(reason)}" for reason in document["exploratory"]),
        plain(READING),
        "",
        *table(["Arm", "Verdict", "Why"], arms),
        *table(["Arm", "Suite", "Margin", "Cases", "Evidence", "Admitted at case"], cells),
    ]
    return "\n".join(parts) + "\n"
