# SPDX-License-Identifier: Apache-2.0
"""The README's bench section: losses, absences and missed targets are in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernels_sm70.bench import summary
from kernels_sm70.build import source_digest
from kernels_sm70.registry import OPERATIONS


def row(candidate: str, us: float | None, **changes: object) -> dict[str, object]:
    made: dict[str, object] = {
        "operation": "op",
        "case": "M4",
        "candidate": candidate,
        "us": us,
        "floors": None if us is None else us / 2,
        "floor_us": 2.0,
        "bytes": 8_000_000,
        "target": "",
        "met": None,
        "speedup": None,
        "note": "",
    }
    return made | changes


def test_every_candidate_is_kept_fastest_first() -> None:
    rows = [
        row("slow", 9.0, target="<= 2.0 floors", met=False),
        row("gone", None, note="not installed"),
        row("fast", 3.0),
    ]
    line = summary.case_lines(rows)[2]
    order = [line.index(word) for word in ("fast 3.00", "slow 9.00", "gone: absent")]
    assert order == sorted(order)
    assert "slow <= 2.0 floors: missed" in line
    assert "not installed" in line


def test_the_readme_is_rewritten_between_its_markers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{summary.BEGIN}\nold\n{summary.END}\nafter\n")
    monkeypatch.setattr(summary, "README", readme)
    monkeypatch.setattr(summary, "PACKAGE_ROOT", tmp_path / "kernels_sm70")
    facts = {"card": "C", "driver": "D", "torch": "T", "date": "today", "commit": "abc"}
    results = tmp_path / "docs" / "results.json"
    results.parent.mkdir()
    document = {"facts": facts, "copy_bytes_per_s": 4e12, "bench": [row("fast", 3.0)]}
    results.write_text(json.dumps(document))
    assert summary.main([str(results)]) == 0
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "commit abc" in text
    assert "../docs/results.md" in text
    readme.write_text("no markers")
    assert summary.main([str(results)]) == 1


def test_the_committed_readme_shows_the_committed_results() -> None:
    """The table in the README is the one of docs/results, not an older or a better one."""
    root = summary.PACKAGE_ROOT.parent
    results = json.loads((root / "docs/results/kernels-h200/results.json").read_text())
    text = summary.README.read_text()
    for line in summary.case_lines(results["bench"]):
        assert line in text


@pytest.mark.parametrize("name", ["results.json", "sanitizer.json"])
def test_the_committed_results_are_of_these_sources(name: str) -> None:
    """Numbers of an older kernel must not stand beside the present one without a word."""
    folder = Path(__file__).resolve().parents[2] / "docs" / "results" / "kernels-h200"
    measured = json.loads((folder / name).read_text())["facts"]["sources"]
    told = (folder / "README.md").read_text()
    assert set(measured) == set(OPERATIONS)
    for operation in OPERATIONS:
        newer = f"{operation}: the source has changed since"
        assert (source_digest(operation) == measured[operation]) != (newer in told), operation
