"""The report document as one self-contained page. Everything in it is escaped and inert.

The page's policy allows its own style and script by hash and nothing else: no request leaves
it, and markup that a model wrote has nothing to run. Control and format characters are made
visible, so no answer can steer a terminal or turn the text's direction.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from evalharness.report.plots import delta_plots, forest_plots, load_plot
from evalharness.text import printable

# Flips shown with their answers in the page; all of them are in report.json.
MAX_FLIPS = 1_000
GLYPHS = {
    "admitted": "✓",
    "harm shown": "✗",
    "undecided": "?",
    "incomplete": "…",
    "exploratory": "~",
}
NONE = "–"
Row = Mapping[str, Any]


def render_html(document: Mapping[str, Any]) -> str:
    """Return the page for a report document (formats/report.schema.json)."""
    environment = _environment()
    style, script = _asset("style.css"), _asset("filter.js")
    policy = (
        f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("index.html.j2").render(
        doc=document,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        limits={"flips": MAX_FLIPS},
        forests=list(forest_plots(document)),
        tails=list(delta_plots(document)),
        load_picture=load_plot(document),
    )


def _asset(name: str) -> str:
    return (files("evalharness.report") / "templates" / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("evalharness.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        css=lambda verdict: str(verdict).split(" ", maxsplit=1)[0],
        glyph=lambda verdict: GLYPHS[verdict],
        points=points,
        size=lambda value: NONE if value is None else f"{100 * value:.3g}",
        percent=lambda value: NONE if value is None else f"{100 * value:.3g}%",
        p=p_value,
        nats=lambda value: NONE if value is None else f"{value:+.3g}",
        num=lambda value: NONE if value is None else f"{value:.4g}",
        num4=lambda value: NONE if value is None else f"{value:.4f}",
        signed=lambda value: NONE if value is None else f"{value:+.1f}",
        group=lambda value: NONE if value is None else f"{value:,}",
        json=lambda value: json.dumps(value, ensure_ascii=False),
        suite_modes=_suite_modes,
        chips=chips,
        match=_match,
        discordance=_discordance,
    )
    return environment


def _finalize(value: Any) -> Any:
    """Escape control and format characters of every inserted text, markup of ours excepted."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value)


def points(value: float | None) -> str:
    """Return a difference as signed points: 0.0469 -> +4.7."""
    return NONE if value is None else f"{100 * value:+.1f}"


def p_value(value: float | None) -> str:
    """Return a p-value with three significant digits, or <.0001."""
    if value is None:
        return NONE
    return "<.0001" if value < 1e-4 else f"{value:.3g}"


def _suite_modes(document: Row) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["suite"], row["mode"]) for row in document["counts"]))


def chips(document: Row, arm: str, suite: str, mode: str) -> Iterator[dict[str, Any]]:
    """Yield what the overview shows of an arm in one suite: one chip a concurrency level."""
    cells = {(c["arm"], c["suite"], c["mode"], c["concurrency"]): c for c in document["cells"]}
    noise = {(a["suite"], a["mode"], a["concurrency"]): a for a in document["aa"] if a["table"]}
    for row in document["counts"]:
        if (row["arm"], row["suite"], row["mode"]) != (arm, suite, mode):
            continue
        level = row["concurrency"]
        cell = cells.get((arm, suite, mode, level))
        table = cell["table"] if cell else None
        if arm == document["design"]["aa"] and (suite, mode, level) in noise:
            table = noise[suite, mode, level]["table"]
        total = row["correct"] + row["wrong"] + row["unobserved"]
        missing = f", {row['unobserved']} unobserved" if row["unobserved"] else ""
        yield {
            "concurrency": level,
            "verdict": cell["verdict"] if cell else None,
            "text": f"{row['correct']} of {total}{missing}",
            "flips": f"+{table['wins']} −{table['losses']}" if table else "",
            "words": f"C{level}: {row['correct']} correct, {row['wrong']} wrong{missing}"
            + (f"; {cell['verdict']}: {cell['reason']}" if cell else ""),
        }


def _match(rows: list[Row], wanted: Row) -> Row | None:
    keys = ("arm", "suite", "mode", "concurrency")
    return next((r for r in rows if all(r[k] == wanted[k] for k in keys)), None)


def _discordance(table: Row) -> float:
    pairs = sum(table[k] for k in ("both_right", "wins", "losses", "both_wrong"))
    return float((table["wins"] + table["losses"]) / pairs) if pairs else 0.0
