"""The table at the end of a run: every suite of the report is in it, NLL too."""

from __future__ import annotations

import io
from pathlib import Path

from evalharness.noninferiority import Asked
from evalharness.report import report_document
from evalharness.report.html import render_html
from evalharness.report.markdown import render_markdown
from evalharness.report.terminal import print_verdicts
from evalharness.types import CellKey
from tests.report.plant import BFCL, Plant, SuiteSpec, flat_logprobs, plant_run

SMALL_NLL = SuiteSpec("nll", "decode", 60, "nll", "raw/1")


def shifted(key: CellKey, index: int) -> list[float | None]:
    """The arm finds every token a hundredth of a nat less likely."""
    values = flat_logprobs(key, index)
    return [v - 0.01 if v is not None and key.arm == "hc" else v for v in values]


def test_arms_suites_and_levels_are_in_the_table(tmp_path: Path) -> None:
    plant = Plant(
        suites=(BFCL, SMALL_NLL),
        factors={"hc": ("off", "on")},
        concurrency=(1, 4),
        logprobs=shifted,
        margins={"nll.decode": {"nats_per_token": 0.002, "tail_nats": 0.5, "tail_share": 0.01}},
    )
    stream = io.StringIO()
    print_verdicts(report_document([plant_run(tmp_path / "r", plant)], Asked()), [], stream)
    lines = stream.getvalue().splitlines()
    (counts,) = (line for line in lines if line.startswith("hc") and "bfcl" in line)
    assert counts.count("60/20/0 +0 −0") == 2
    rows = {line.split()[0]: line for line in lines if "nll decode" in line}
    assert set(rows) == {"aa", "hc"}
    assert rows["hc"].count("+0.01000 nats tail 0% ✗") == 2
    assert rows["aa"].count("+0.00000 nats tail 0%") == 2 and "✗" not in rows["aa"]


def test_what_has_no_margin_is_described_not_undecided(tmp_path: Path) -> None:
    """No margin: no more cases would decide it, so it must not read like a verdict left open."""
    plant = Plant(
        suites=(BFCL, SMALL_NLL),
        factors={"hc": ("off", "on")},
        concurrency=(1,),
        margins={"bfcl": 0.1},
    )
    document = report_document([plant_run(tmp_path / "r", plant)], Asked())
    assert [cell["verdict"] for cell in document["nll"]["cells"]] == ["undecided"]
    (row,) = (line for line in render_markdown(document).splitlines() if "| decode C1 |" in line)
    assert "· described" in row and "undecided" not in row
    stream = io.StringIO()
    print_verdicts(document, [], stream)
    (shown,) = (line for line in stream.getvalue().splitlines() if line.startswith("hc   nll"))
    assert shown.rstrip().endswith("·")
    assert 'v-described">described' in render_html(document)
