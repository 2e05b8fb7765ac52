"""The report document as Markdown for a pull request: the verdict, the table, the flips' ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalharness.report.html import (
    FIGURE_NAMES,
    GLYPHS,
    interval,
    needed,
    p_value,
    points,
    reading_groups,
)
from evalharness.text import printable

# Longer lists make a pull request unreadable; report.json has all of them.
MAX_IDS = 20
SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_{}[]()<>#+!|~&@$"})
Row = Mapping[str, Any]


def render_markdown(document: Row) -> str:
    """Return the report for a pull request; text from outside is escaped."""
    parts = [
        *_head(document),
        *_arms(document),
        *_speed(document),
        *_counts(document),
        *_cells(document),
        *_flips(document),
        *_nll(document),
        *_readings(document),
        *_unobserved(document),
        *_placement(document),
        *_tail(document),
    ]
    return "\n".join(parts) + "\n"


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


def _head(document: Row) -> Iterator[str]:
    design = document["design"]
    yield f"# {badge(document['headline']['verdict'])} - {plain(document['headline']['sentence'])}"
    yield ""
    runs = ", ".join(code(run["plan_sha256"][:12]) for run in design["runs"])
    levels = ", ".join(f"C{c}" for c in design["gate_concurrency"])
    yield (
        f"{plain(design['title'])}, manifest {plain(design['manifest'])}, run {runs}; "
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
            needed(arm),
        ]
        for arm in document["arms"]
    ]
    return table(["Arm", "Verdict", "Why", "Gates passed", "Cases needed"], rows)


def _speed(document: Row) -> list[str]:
    """Return speed beside quality, then every figure at every level."""
    speed = document["speed"]
    if not speed:
        return []
    arms = [
        [plain(arm["arm"]), badge(arm["quality"]), f"**{plain(arm['sentence'])}**"]
        for arm in speed["arms"]
    ]
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
        *table(["Arm", "Quality", "Speed and quality"], arms),
        f"<details><summary>Speed: ratios with {share} intervals over repeats</summary>",
        "",
        *table(head, rows),
        "</details>",
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
            badge(cell["verdict"]),
            f"+{cell['table']['wins']} −{cell['table']['losses']}",
            f"{points(cell['estimate'])} ({points(cell['lower'])}, {points(cell['upper'])})",
            "–" if cell["margin"] is None else f"{100 * cell['margin']:g}",
            p_value(cell["p"] if cell["margin"] is not None else None),
            f"+{cell['aa']['wins']} −{cell['aa']['losses']}" if cell["aa"] else "–",
        ]
        for cell in document["cells"]
    ]
    head = ["Arm", "Suite", "C", "Verdict", "Flips", "Points (interval)", "Margin", "p", "A/A"]
    opening = ["<details><summary>Every contrast</summary>", ""]
    return [*opening, *table(head, rows), "</details>", ""]


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


def _nll(document: Row) -> list[str]:
    rows = []
    for cell in document["nll"]["cells"]:
        summary, aa = cell["summary"], cell["aa"]
        rows.append(
            [
                plain(cell["arm"]),
                f"{plain(cell['mode'])} C{cell['concurrency']}",
                badge(cell["verdict"]),
                f"{summary['estimate']:+.3g}" if summary else "–",
                f"{100 * summary['tail_share']:.3g}%" if summary else "–",
                f"{aa['estimate']:+.3g}, {100 * aa['tail_share']:.3g}%" if aa else "–",
            ]
        )
    if not rows:
        return []
    head = ["Arm", "NLL mode", "Verdict", "Mean, nats/token", "Tail share", "A/A mean, tail"]
    return table(head, rows)


def _unobserved(document: Row) -> Iterator[str]:
    for row in document["unobserved"]:
        place = f"{plain(row['arm'])}, {plain(row['suite'])} C{row['concurrency']}"
        reason = plain(row["reason"])
        yield f"- unobserved, {place}: {len(row['case_ids'])} ({reason}): {_ids(row['case_ids'])}"
    for row in document["excluded"]:
        place, reason = f"{plain(row['suite'])} {plain(row['mode'])}", plain(row["reason"])
        yield f"- left out in every arm, {place}: {reason}: {_ids(row['case_ids'])}"
    for row in document["stopped"]:
        place = f"{plain(row['arm'])}, {plain(row['suite'])} C{row['concurrency']}"
        yield f"- {row['state']} cell, {place}: {plain(row['reason'])}"
    yield ""


def _readings(document: Row) -> Iterator[str]:
    groups = reading_groups(document)
    if not groups:
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


def _tail(document: Row) -> Iterator[str]:
    yield "What this run cannot say:"
    yield ""
    yield from (f"- {plain(sentence)}" for sentence in document["cannot_say"])
