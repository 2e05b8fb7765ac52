"""The model card: its table is what the committed outcomes say, and they meet the goals."""

from __future__ import annotations

import json
import re
from pathlib import Path

from evalharness.manifest import load_manifest
from tools.demo_model.card import counts

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = json.loads((ROOT / "docs" / "results" / "model-card.json").read_text())
# The card's names of what the outcomes are kept under.
ROWS = {
    "BFCL simple": "simple_python",
    "BFCL multiple": "multiple",
    "BFCL parallel": "parallel",
    "BFCL irrelevance": "irrelevance",
    "schema, Github_easy, prompt only": "schema",
    "gsm8k, first 16": "gsm8k",
}


def card_rows() -> dict[str, list[str]]:
    text = (ROOT / "tools" / "demo_model" / "README.md").read_text()
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


def test_the_table_is_what_the_outcomes_say() -> None:
    rows, found = card_rows(), counts(DOCUMENT)
    assert set(found) == set(ROWS.values())
    for name, kind in ROWS.items():
        shown = [f"{n} of {of}, {n / of:.0%}" for n, of in found[kind].values()]
        assert list(found[kind]) == ["C1", "C16"] and rows[name][1:] == shown


def test_every_goal_is_met_at_both_levels() -> None:
    rows, found = card_rows(), counts(DOCUMENT)
    for name, kind in ROWS.items():
        goal = re.fullmatch(r"(\d+)%", rows[name][0])
        for correct, asked in found[kind].values():
            assert goal is None or correct / asked >= int(goal[1]) / 100, (kind, correct, asked)


def test_the_cases_are_the_manifests() -> None:
    manifest = load_manifest(ROOT / "manifests" / "model-card.json")
    asked = {case for entry in manifest.entries.values() for case in entry.case_ids}
    assert {case for cases in DOCUMENT["outcomes"].values() for case in cases} == asked
