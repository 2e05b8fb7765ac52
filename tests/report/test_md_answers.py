"""report.md under the verdicts: what NLL cells rest on, texts that differ, arms never run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from evalharness.noninferiority import Asked
from evalharness.report import report_document
from evalharness.report.filters import rows_m
from evalharness.report.html import nll_chips
from evalharness.report.markdown import render_markdown
from evalharness.types import CellKey
from tests.report.plant import BFCL, Plant, SuiteSpec, flat_logprobs, plant_run, write_sums

JUDGED = SuiteSpec("nll", "decode", 64, "nll", "raw/1")
MARGIN = {"nats_per_token": 0.002, "tail_nats": 0.05, "tail_share": 0.04}


def one_token_moves(key: CellKey, index: int) -> list[float | None]:
    """In the arm one token of sixteen moves by 0.1 nats, up and down in turn."""
    values = flat_logprobs(key, index)
    first = values[0]
    if key.arm == "hc" and first is not None:
        values[0] = first + (0.1 if index % 2 else -0.1)
    return values


def planted(folder: Path, **more: Any) -> Path:
    facts: dict[str, Any] = {
        "suites": (BFCL, JUDGED),
        "factors": {"hc": ("off", "on")},
        "concurrency": (1, 4),
        "logprobs": one_token_moves,
    }
    return plant_run(folder / "run", Plant(**(facts | more)))


def rows(text: str, start: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith(start)]
    return [[part.strip() for part in line.strip("|").split(" | ")] for line in lines]


def markdown(run: Path) -> str:
    return render_markdown(report_document([run], Asked()))


def test_an_nll_row_says_what_its_verdict_rests_on(tmp_path: Path) -> None:
    text = markdown(planted(tmp_path, margins={"nll.decode": MARGIN}))
    for row in rows(text, "| hc | decode C"):
        assert row[2] == "**✗ harm shown**"
        mean, _, p = row[3].partition(" (")
        assert abs(float(mean)) < 1e-9 and float(p.rstrip(")")) < 0.025
        assert row[4] == "0.05: 6.25%"
        assert row[5].startswith("+6.25 points (") and row[5].endswith("; 1)")
        assert row[6] == "<.0001"


def test_the_threshold_of_a_suite_without_a_margin_is_named(tmp_path: Path) -> None:
    text = markdown(planted(tmp_path, margins={"bfcl": 0.1}))
    for row in rows(text, "| hc | decode C"):
        assert row[2] == "**· described**" and row[4] == "0.5: 0%" and row[5:7] == ["–", "–"]


def test_texts_that_differ_are_counted_whatever_the_scores(tmp_path: Path) -> None:
    """Twenty of eighty are wrong in every arm, each with another text: no flip, yet a change."""
    text = markdown(planted(tmp_path, margins={"bfcl": 0.1}))
    part = text.partition("text differs from the control's")[2].partition("</details>")[0]
    assert rows(part, "| hc |") == [["hc", "bfcl tools", "20 of 80", "20 of 80"]]


def test_an_arm_never_run_has_no_numbers(tmp_path: Path) -> None:
    run = planted(tmp_path, margins={"nll.decode": MARGIN})
    for part in ("responses", "scores/official-1", "scores"):
        for folder in run.glob(f"{part}/**/hc"):
            shutil.rmtree(folder)
    write_sums(run)
    text = markdown(run)
    contrasts = rows(text, "| hc | bfcl tools | ")
    assert [row[3:8] for row in contrasts if len(row) == 9] == [
        ["**… incomplete**", "–", "–", "–", "–"]
    ] * 2
    assert all(
        row[2:7] == ["**… incomplete**", *["–"] * 4] for row in rows(text, "| hc | decode C")
    )
    assert "fewer than two observed cases" in text and "without an A/A launch" not in text


@pytest.mark.parametrize(("m", "shown"), [(1, "1"), (64, "64"), (65, ">64")])
def test_rows_above_the_counters_reach_are_no_number(m: int, shown: str) -> None:
    assert rows_m(m) == shown


def nothing_said(key: CellKey, index: int) -> list[float | None]:
    """The arm's answers carry no log-probability at all."""
    return [None] * 16 if key.arm == "hc" else flat_logprobs(key, index)


def lower(key: CellKey, index: int) -> list[float | None]:
    """Every token of the arm is 0.3 nats less likely."""
    return [v and v - 0.3 * (key.arm == "hc") for v in flat_logprobs(key, index)]


def test_harm_without_any_mean_is_not_shown_as_never_run(tmp_path: Path) -> None:
    run = planted(tmp_path, margins={"nll.decode": MARGIN}, logprobs=nothing_said)
    document = report_document([run], Asked())
    for row in rows(render_markdown(document), "| hc | decode C"):
        assert row[2] == "**✗ harm shown**" and row[3] == "–"
        assert row[5].startswith("+100 points (") and row[6] == "<.0001"
    assert {chip["text"] for chip in nll_chips(document, arm="hc", mode="decode")} == {"no mean"}


def test_harm_without_an_aa_launch_says_what_shows_it(tmp_path: Path) -> None:
    text = markdown(planted(tmp_path, aa=False, margins={"nll.decode": MARGIN}, logprobs=lower))
    for row in rows(text, "| hc | decode C"):
        assert row[2] == "**✗ harm shown**" and row[5:7] == ["–", "<.0001"]


def test_a_mean_of_too_few_cases_has_no_p(tmp_path: Path) -> None:
    few = (BFCL, SuiteSpec("nll", "decode", 30, "nll", "raw/1"))
    text = markdown(planted(tmp_path, margins={"nll.decode": MARGIN}, suites=few))
    for row in rows(text, "| hc | decode C"):
        assert row[3].endswith("(not tested: under 60 cases)")


def test_a_replay_never_run_is_named(tmp_path: Path) -> None:
    run = planted(tmp_path, margins={"bfcl": 0.1}, replays=2)
    lost = next(run.glob("responses/hc/*/bfcl.tools-c4-r1.cell.json"))
    for path in (lost, lost.with_name("bfcl.tools-c4-r1.jsonl")):
        path.unlink()
    for path in run.glob("scores/*/hc/*/bfcl.tools-c4-r1.jsonl"):
        path.unlink()
    write_sums(run)
    (row,) = report_document([run], Asked())["stopped"]
    assert (row["arm"], row["concurrency"], row["replicate"]) == ("hc", 4, 1)
