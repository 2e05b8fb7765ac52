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

from evalharness.report.filters import (
    FIGURE_NAMES,
    GLYPHS,
    NO_OTHER_READING,
    NO_OTHER_SCORER,
    NONE,
    arm_needed,
    counted,
    interval,
    largest,
    nats,
    nats_span,
    needed,
    never_observed,
    noise_span,
    p_value,
    points,
    points_span,
    rows_m,
    shown_verdict,
    tokens_span,
)
from evalharness.report.plots import delta_plots, forest_plots, load_plot
from evalharness.text import printable

# Flips shown with their answers in the page; all of them are in report.json.
MAX_FLIPS = 1_000
# Cases shown of one rule, on which another scorer reads differently.
MAX_READINGS = 100
Row = Mapping[str, Any]


def render_html(document: Mapping[str, Any]) -> str:
    """Return the page for a report document (formats/report.schema.json)."""
    return render_page(
        "index.html.j2",
        doc=document,
        limits={"flips": MAX_FLIPS, "readings": MAX_READINGS},
        sections=list(_sections(document)),
        forests=list(forest_plots(document)),
        tails=list(delta_plots(document)),
        load_picture=load_plot(document),
    )


def render_page(template: str, **values: Any) -> str:
    """Return one of our templates with its style, script and policy, everything escaped."""
    style, script = _asset("style.css"), _asset("filter.js")
    policy = (
        f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        _environment()
        .get_template(template)
        .render(policy=policy, style=Markup(style), script=Markup(script), **values)
    )


def _sections(document: Row) -> Iterator[tuple[str, str]]:
    yield "verdicts", "Verdicts"
    if document["speed"]:
        yield "speed", "Speed"
    yield from (("answers", "Answers"), ("limits", "Limits"))
    yield from (("results", "Contrasts"), ("flips", "Flips"))
    if document["unobserved"] or document["stopped"] or document["excluded"]:
        yield "unobserved", "Not counted"
    yield "readings", "Other readings"
    if document["nll"]["cells"] or document["nll"]["deltas"]:
        yield "nll", "Token log-probabilities"
    yield "noise", "Noise"
    if document["factorial"]:
        yield "factorial", "Effects"
    yield "load", "Load"
    if len(document["placement"]["nodes"]) > 1:
        yield "placement", "Placement"
    yield "provenance", "Provenance"


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
        rows_m=rows_m,
        shown=shown_verdict,
        glyph=lambda verdict: GLYPHS[verdict],
        needed=needed,
        arm_needed=arm_needed,
        largest=largest,
        nats_span=nats_span,
        points_span=points_span,
        tokens_span=tokens_span,
        noise_span=noise_span,
        points=points,
        size=lambda value: NONE if value is None else f"{100 * value:.3g}",
        percent=lambda value: NONE if value is None else f"{100 * value:.3g}%",
        p=p_value,
        nats=nats,
        num=lambda value: NONE if value is None else f"{value:.4g}",
        num4=lambda value: NONE if value is None else f"{value:.4f}",
        signed=lambda value: NONE if value is None else f"{value:+.1f}",
        figure=lambda name: FIGURE_NAMES[name],
        interval=interval,
        counted=counted,
        group=lambda value: NONE if value is None else f"{value:,}",
        json=lambda value: json.dumps(value, ensure_ascii=False),
        suite_modes=_suite_modes,
        chips=chips,
        nll_chips=nll_chips,
        nll_modes=_nll_modes,
        shown_effects=_shown_effects,
        flip_groups=flip_groups,
        reading_groups=reading_groups,
        no_reading=lambda doc: NO_OTHER_READING if doc["other_scorers"] else NO_OTHER_SCORER,
        places=places,
        match=_match,
        discordance=_discordance,
    )
    return environment


def _finalize(value: Any) -> Any:
    """Escape control and format characters of every inserted text, markup of ours excepted."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value)


def nll_chips(document: Row, *, arm: str, mode: str) -> Iterator[dict[str, Any]]:
    """Yield the overview's chips of an arm in one NLL mode: mean delta and tail share."""
    noise = arm == document["design"]["aa"]
    for row in document["aa"] if noise else document["nll"]["cells"]:
        if row["mode"] != mode or (row["table"] if noise else row["arm"] != arm):
            continue
        summary = row["nll"] if noise else row["summary"]
        nothing = "unobserved" if noise or never_observed(row) else "no mean"
        yield {
            "concurrency": row["concurrency"],
            "verdict": None if noise else shown_verdict(row),
            "text": f"{nats(summary['estimate'])} nats" if summary else nothing,
            "flips": f"tail {100 * summary['tail_share']:.2g}%" if summary else "",
            "words": f"C{row['concurrency']}: {row['reason']}",
        }


def _nll_modes(document: Row) -> list[str]:
    return list(dict.fromkeys(row["mode"] for row in document["nll"]["cells"]))


def _suite_modes(document: Row) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["suite"], row["mode"]) for row in document["counts"]))


def chips(document: Row, *, arm: str, suite: str, mode: str) -> Iterator[dict[str, Any]]:
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
        lost = f", {row['unobserved']} unobs." if row["unobserved"] else ""
        yield {
            "concurrency": level,
            "verdict": shown_verdict(cell) if cell else None,
            "text": f"{row['correct']} of {total}{lost}",
            "flips": f"+{table['wins']} −{table['losses']}" if table else "",
            "words": f"C{level}: {row['correct']} correct, {row['wrong']} wrong{missing}"
            + (f"; {shown_verdict(cell)}: {cell['reason']}" if cell else ""),
        }


def flip_groups(document: Row, *, noise: bool) -> list[dict[str, Any]]:
    """Return flips by arm, suite and case: of the arms, or (noise) of the A/A launch.

    `kinds` maps C to win, loss or both; suites keep their order, cases go by id.
    """
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    aa = document["design"]["aa"]
    for flip in document["flips"]:
        if (flip["arm"] == aa) != noise:
            continue
        key = (flip["arm"], flip["suite"], flip["mode"], flip["case_id"])
        first = dict(zip(("arm", "suite", "mode", "case_id"), key, strict=True))
        group = groups.setdefault(key, {**first, "kinds": {}, "flips": []})
        level = flip["concurrency"]
        seen = group["kinds"].setdefault(level, flip["kind"])
        group["kinds"][level] = flip["kind"] if seen == flip["kind"] else "both"
        group["flips"].append(flip)
    order = {name: place for place, name in enumerate(document["design"]["arms"])}
    places = {name: place for place, name in enumerate(_suite_modes(document))}
    return sorted(
        groups.values(),
        key=lambda g: (order[g["arm"]], places[g["suite"], g["mode"]], g["case_id"]),
    )


def reading_groups(document: Row) -> list[dict[str, Any]]:
    """Return the disagreements of scorer versions by suite, mode, version and rule."""
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in document["readings"]:
        keys = ("suite", "mode", "declared", "scorer", "rule")
        key = tuple(row[name] for name in keys)
        group = groups.setdefault(key, {**dict(zip(keys, key, strict=True)), "rows": []})
        group["rows"].append(row)
    return list(groups.values())


def places(row: Row) -> str:
    """Return where a disagreement was seen: `control C1 C4; A C4`."""
    levels: dict[str, list[str]] = {}
    for place in row["places"]:
        levels.setdefault(place["arm"], [])
        level = f"C{place['concurrency']}"
        if level not in levels[place["arm"]]:
            levels[place["arm"]].append(level)
    return "; ".join(f"{arm} {' '.join(found)}" for arm, found in levels.items())


def _shown_effects(document: Row) -> list[tuple[Row, Row]]:
    """Return (table, effect) of every effect whose simultaneous interval excludes zero."""
    return [
        (table, effect)
        for table in document["factorial"]
        for effect in table["effects"]
        if effect["lower"] is not None and (effect["lower"] > 0 or effect["upper"] < 0)
    ]


def _match(rows: list[Row], wanted: Row) -> Row | None:
    keys = ("arm", "suite", "mode", "concurrency")
    return next((r for r in rows if all(r[k] == wanted[k] for k in keys)), None)


def _discordance(table: Row) -> float:
    pairs = sum(table[k] for k in ("both_right", "wins", "losses", "both_wrong"))
    return float((table["wins"] + table["losses"]) / pairs) if pairs else 0.0
