"""The report document as Markdown for a pull request: the verdict, the table, the flips' ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalharness.report.filters import (
    FIGURE_NAMES,
    NO_OTHER_READING,
    NO_OTHER_SCORER,
    NONE,
    arm_needed,
    counted,
    interval,
    never_observed,
    p_value,
    points,
    points_span,
    shown_verdict,
)
from evalharness.report.html import reading_groups
from evalharness.report.md_answers import nll_lines, text_lines
from evalharness.report.md_provenance import provenance_lines
from evalharness.report.md_text import badge, code, plain, table

# Longer lists make a pull request unreadable; report.json has all of them.
MAX_IDS = 20
Row = Mapping[str, Any]


def render_markdown(document: Row) -> str:
    """Return the report for a pull request; text from outside is escaped."""
    parts = [
        *_head(document),
        *_arms(document),
        *_limits(document),
        *_speed(document),
        *_counts(document),
        *_cells(document),
        *_flips(document),
        *text_lines(document),
        *nll_lines(document),
        *_readings(document),
        *_unobserved(document),
        *_placement(document),
        *provenance_lines(document),
    ]
    return "\n".join(parts) + "\n"


def _head(document: Row) -> Iterator[str]:
    design = document["design"]
    yield f"# {badge(document['headline']['verdict'])} - {plain(document['headline']['sentence'])}"
    yield ""
    runs = ", ".join(code(run["plan_sha256"][:12]) for run in design["runs"])
    levels = ", ".join(f"C{c}" for c in design["gate_concurrency"])
    yield (
        f"{plain(design['title'])}, manifest {plain(design['manifest'])}, plan {runs}; "
        f"control {plain(design['control'])}; gates at {levels}; alpha {design['alpha']}."
    )
    yield ""
    if document["exploratory"]:
        yield "> Exploratory, so nothing can be admitted:"
        yield from (f"> - {plain(reason)}" for reason in document["exploratory"])
        yield ""


def _arms(document: Row) -> list[str]:
    rows = [
        [
            plain(arm["name"]),
            badge(arm["verdict"]),
            plain(arm["reason"]),
            f"{arm['gate_cells_passed']} of {arm['gate_cells']}",
            plain(arm_needed(arm)),
        ]
        for arm in document["arms"]
    ]
    head = ["Arm", "Verdict", "Why", "Gates passed", "Cases needed"]
    return [*table(head, rows), *_words(document)]


def _words(document: Row) -> list[str]:
    alpha, sequence = document["design"]["alpha"], document["design"]["sequence"]
    shared = "Holm" if sequence == "holm" else "the declared sequence"
    return [
        f"Cases needed: 80% power of each cell alone at alpha {alpha:g}, before {shared}, by which "
        "several arms share that alpha. \\+w −l: cases that the arm won and lost against the "
        "control. C: requests kept in flight. nats: a token's log-probability, 0.01 is about 1%.",
        "",
    ]


def _speed(document: Row) -> list[str]:
    """Return speed beside quality, then every figure at every level."""
    speed = document["speed"]
    if not speed:
        return []
    arms = [
        [plain(arm["arm"]), badge(arm["quality"]), f"**{plain(arm['sentence'])}**"]
        for arm in speed["arms"]
    ]
    summary = table(["Arm", "Quality", "Speed and quality"], arms)
    if not any(map(_has_interval, speed["contrasts"])):
        return [*summary, *_no_speed_interval(speed["contrasts"])]
    rows = [
        [
            plain(row["arm"]),
            str(row["concurrency"]),
            plain(FIGURE_NAMES[row["figure"]]),
            interval(row["ratio"]),
            interval(row["saved_ms"]),
            str(row["repeats"]),
            plain(row["claim"] if row["claim"] != "none" else row["reason"]),
        ]
        for row in speed["contrasts"]
    ]
    head = ["Arm", "C", "Figure", "Arm / control (interval)", "Saved, ms", "Repeats", "Said"]
    share = f"{100 * speed['confidence']:.4g}%"
    return [
        *summary,
        f"<details><summary>Speed: ratios with {share} intervals over repeats</summary>",
        "",
        *table(head, rows),
        "</details>",
        "",
    ]


def _has_interval(row: Row) -> bool:
    return any(row[name] and row[name]["lower"] is not None for name in ("ratio", "saved_ms"))


def _no_speed_interval(rows: Sequence[Row]) -> list[str]:
    """Return one sentence for a table of which no row has an interval; the page has its figures."""
    if not rows:
        return []
    reasons = list(dict.fromkeys(row["reason"] for row in rows))
    more = f" (and {counted(len(reasons) - 1, 'other reason')})" if len(reasons) > 1 else ""
    return [
        f"No speed figure has an interval: {plain(reasons[0])}{plain(more)}. "
        "index.html has every figure.",
        "",
    ]


def _counts(document: Row) -> list[str]:
    levels = document["design"]["concurrency"]
    found: dict[tuple[str, str, str], dict[int, Row]] = {}
    for row in document["counts"]:
        key = (row["arm"], row["suite"], row["mode"])
        found.setdefault(key, {})[row["concurrency"]] = row
    rows = [
        [plain(arm), plain(f"{suite} {mode}"), *(_count(by_level.get(c)) for c in levels)]
        for (arm, suite, mode), by_level in found.items()
    ]
    head = ["Arm", "Suite", *(f"C{c}" for c in levels)]
    return ["Correct / wrong / unobserved:", "", *table(head, rows)]


def _count(row: Row | None) -> str:
    return f"{row['correct']} / {row['wrong']} / {row['unobserved']}" if row else "–"


def _cells(document: Row) -> list[str]:
    rows = [
        [
            plain(cell["arm"]),
            plain(f"{cell['suite']} {cell['mode']}"),
            str(cell["concurrency"]),
            badge(shown_verdict(cell)),
            *_contrast(cell),
            f"+{cell['aa']['wins']} −{cell['aa']['losses']}" if cell["aa"] else NONE,
        ]
        for cell in document["cells"]
    ]
    head = ["Arm", "Suite", "C", "Verdict", "Flips", "Points (interval)", "Margin", "p", "A/A"]
    opening = ["<details><summary>Every contrast</summary>", ""]
    return [*opening, *table(head, rows), "</details>", ""]


def _contrast(cell: Row) -> list[str]:
    """Return flips, difference, margin and p; of a side never observed, its margin alone."""
    margin = NONE if cell["margin"] is None else f"{100 * cell['margin']:g}"
    if never_observed(cell):
        return [NONE, NONE, margin, NONE]
    return [
        f"+{cell['table']['wins']} −{cell['table']['losses']}",
        f"{points(cell['estimate'])} {points_span((cell['lower'], cell['upper']))}",
        margin,
        p_value(cell["p"] if cell["margin"] is not None else None),
    ]


def _flips(document: Row) -> Iterator[str]:
    arms = [arm["name"] for arm in document["arms"]]
    yield "<details><summary>Flips by case</summary>"
    yield ""
    groups: dict[tuple[str, str, str, int, str], list[str]] = {}
    for flip in document["flips"]:
        if flip["arm"] in arms:
            key = (flip["arm"], flip["suite"], flip["mode"], flip["concurrency"], flip["kind"])
            groups.setdefault(key, []).append(flip["case_id"])
    plural = {"loss": "losses", "win": "wins"}
    for (arm, suite, mode, level, kind), ids in groups.items():
        yield f"- {plain(arm)}, {plain(suite)} {plain(mode)} C{level}, {plural[kind]}: {_ids(ids)}"
    yield "" if groups else "None.\n"
    yield "</details>"
    yield ""


def _ids(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MAX_IDS} more" if len(ids) > MAX_IDS else ""
    return ", ".join(code(case_id) for case_id in ids[:MAX_IDS]) + more


def _place(row: Row) -> str:
    return f"{plain(row['arm'])}, {plain(row['suite'])} {plain(row['mode'])} C{row['concurrency']}"


def _unobserved(document: Row) -> Iterator[str]:
    for row in document["unobserved"]:
        place = _place(row)
        reason = plain(row["reason"])
        yield f"- unobserved, {place}: {len(row['case_ids'])} ({reason}): {_ids(row['case_ids'])}"
    for row in document["excluded"]:
        place, reason = f"{plain(row['suite'])} {plain(row['mode'])}", plain(row["reason"])
        yield f"- left out in every arm, {place}: {reason}: {_ids(row['case_ids'])}"
    for row in document["stopped"]:
        place = _place(row)
        what = f"{plain(row['reason'])}; {plain(row['became'])}"
        yield f"- {row['state']} cell, {place}: {what}"
    yield ""


def _readings(document: Row) -> Iterator[str]:
    groups = reading_groups(document)
    if not groups:
        stored = document["other_scorers"]
        yield f"Other readings: {plain(NO_OTHER_READING if stored else NO_OTHER_SCORER)}."
        yield ""
        return
    yield "<details><summary>Where another scorer reads an answer differently</summary>"
    yield ""
    for group in groups:
        rule = f" ({plain(group['rule'])})" if group["rule"] else ""
        place = f"{plain(group['suite'])} {plain(group['mode'])}"
        versions = f"{plain(group['scorer'])} against {plain(group['declared'])}"
        yield f"- {place}, {versions}{rule}: {_ids([row['case_id'] for row in group['rows']])}"
    yield ""
    yield "</details>"
    yield ""


def _placement(document: Row) -> list[str]:
    """Return which node ran which arm; nothing where there was one node."""
    placement = document["placement"]
    if len(placement["nodes"]) < 2:
        return []
    rows = [
        [
            plain(row["arm"]),
            plain(row["node"]),
            ", ".join(map(str, row["launches"])),
            str(row["cells"]),
            str(row["stopped_cells"]),
        ]
        for row in placement["arms"]
    ]
    opening = ["<details><summary>Placement on nodes</summary>", ""]
    head = ["Arm", "Node", "Launches", "Complete cells", "Stopped cells"]
    return [*opening, *table(head, rows), "</details>", ""]


def _limits(document: Row) -> Iterator[str]:
    yield "What this run cannot say:"
    yield ""
    yield from (f"- {plain(sentence)}" for sentence in document["cannot_say"])
    yield ""
