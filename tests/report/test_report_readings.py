"""Other stored readings: every disagreement is listed with its rule, and none moves a verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalharness.noninferiority import Asked
from evalharness.report import report_document
from evalharness.report.html import render_html
from evalharness.report.markdown import render_markdown
from evalharness.types import canonical_json
from tests.report.plant import BFCL, Plant, plant_run, write_sums

RULE = "C1: parallel calls are matched perfectly, not first fit"


def add_reading(run: Path, changes: dict[str, dict[str, Any]], arms: tuple[str, ...]) -> None:
    """Store corrected/1 scores beside the official ones; `changes` by case id, in `arms` only."""
    for file in sorted((run / "scores/bfcl.official-1").rglob("*.jsonl")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for row in rows:
            row["scorer"] = "corrected/1"
            if file.parts[-3] in arms:
                row |= changes.get(row["case_id"], {})
        other = Path(str(file).replace("bfcl.official-1", "bfcl.corrected-1"))
        other.parent.mkdir(parents=True, exist_ok=True)
        other.write_text("".join(canonical_json(row) + "\n" for row in rows))
    write_sums(run)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return plant_run(tmp_path / "run", Plant(suites=(BFCL,), concurrency=(1, 4)))


def case_ids(run: Path) -> list[str]:
    return [
        case["id"]
        for case in json.loads((run / "manifest.json").read_text())["suites"]["bfcl"]["cases"]
    ]


def test_a_disagreement_is_followed_from_the_report_to_its_rule(run: Path) -> None:
    before = report_document([run], Asked())
    assert before["readings"] == []
    wrong, right, excluded = (case_ids(run)[i] for i in (3, 4, 5))
    detail = {"official": "x:y", "rule": RULE}
    add_reading(
        run,
        {
            wrong: {"outcome": "correct", "reason": "valid", "detail": detail},
            right: {"outcome": "correct", "reason": "another word, the same verdict"},
            excluded: {
                "outcome": "unobserved",
                "reason": "excluded: no reply can satisfy it",
                "detail": {
                    "rule": "C4: nothing can satisfy this gold: left out of the denominator"
                },
            },
        },
        ("control",),
    )
    document = report_document([run], Asked())
    found = {row["case_id"]: row for row in document["readings"]}
    assert set(found) == {wrong, excluded}
    row = found[wrong]
    assert (row["declared"], row["scorer"], row["rule"]) == ("official/1", "corrected/1", RULE)
    assert row["declared_verdict"].startswith("wrong (")
    assert row["scorer_verdict"] == "correct (valid)"
    assert [(p["arm"], p["concurrency"]) for p in row["places"]] == [("control", 1), ("control", 4)]
    assert row["answer"]["text"] and (run / row["file"]).is_file()
    page, text = render_html(document), render_markdown(document)
    assert RULE in page and wrong in page and "control C1 C4" in page
    assert wrong in text and "first fit" in text
    assert document["other_scorers"] == [{"suite": "bfcl", "scorer": "corrected/1"}]
    own = {"readings", "other_scorers"}
    moved = {key: value for key, value in document.items() if key not in own}
    assert moved == {key: value for key, value in before.items() if key not in own}
    assert before["other_scorers"] == []
    for words, shown in (
        ("is stored: only the declared", before),
        ("disagrees", {**before, **stored(document)}),
    ):
        assert words in render_markdown(shown) and words in render_html(shown)


def stored(document: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a document that says which other scorers are stored."""
    return {"other_scorers": document["other_scorers"]}


def test_a_reading_that_is_not_of_these_answers_is_said_and_believed_nowhere(run: Path) -> None:
    case = case_ids(run)[0]
    add_reading(run, {case: {"response_digest": "0" * 64}}, ("control",))
    rows = report_document([run], Asked())["readings"]
    assert [row["case_id"] for row in rows] == [case]
    assert "does not belong" in rows[0]["scorer_verdict"]


def test_a_reading_file_that_cannot_be_read_is_named(run: Path) -> None:
    add_reading(run, {}, ())
    broken = next((run / "scores/bfcl.corrected-1/control").rglob("*.jsonl"))
    broken.write_text("not json\n")
    write_sums(run)
    rows = report_document([run], Asked())["readings"]
    assert len(rows) == len(case_ids(run))
    assert all("line 1" in row["scorer_verdict"] for row in rows)
