"""The real command against a streaming server behind two proxies: everything but the timing.

How well a planted slowdown is found is measured by benchmarks/bench_planted_slowdown.py; no
timing gates a test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from benchmarks.bench_planted_slowdown import one_run
from evalharness.speed.figures import FIGURES

ROOT = Path(__file__).parents[2]
REPEATS = 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two repeats of three arms."""
    folder = tmp_path_factory.mktemp("speed")
    one_run(folder, factor=1.5, seed=1, repeats=REPEATS)
    return folder / "run"


def report(run: Path) -> dict[str, Any]:
    """The report's document."""
    document = json.loads((run / "report/report.json").read_text())
    assert isinstance(document, dict)
    return document


@pytest.mark.slow
def test_launches_alternate_and_every_cell_has_its_figures(run: Path) -> None:
    order = json.loads((run / "plan.json").read_text())["order"]
    assert order[3:] == order[2::-1]
    cells = report(run)["speed"]["cells"]
    assert len(cells) == 3 * REPEATS
    for cell in cells:
        assert not cell["missing"], cell
        assert all(cell[figure] > 0 for figure in FIGURES)
        assert (cell["warmup"], cell["requests"]) == (4, 8)
        # 8 measured streams of 24 tokens: some steps must have had all four decoding
        assert 0 < cell["pure_tokens"] <= 8 * 23
    assert len({cell["launch"] for cell in cells}) == 3 * REPEATS


@pytest.mark.slow
def test_two_repeats_claim_nothing_however_large_the_difference(run: Path) -> None:
    section = report(run)["speed"]
    assert {row["claim"] for row in section["contrasts"]} == {"none"}
    assert {row["repeats"] for row in section["contrasts"]} == {REPEATS}
    assert section["arms"][0]["sentence"] == "no difference in speed shown; undecided"


@pytest.mark.slow
def test_the_report_says_where_the_time_went(run: Path) -> None:
    document = report(run)
    schema = json.loads((ROOT / "evalharness/formats/report.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    seconds = {row["part"]: row["seconds"] for row in document["time"]}
    assert seconds["requests in flight"] > 0
    assert "between cells" in seconds
    (idle,) = document["idle"]
    assert idle["cells"] == 3 * REPEATS
    assert 0 <= idle["share"] <= idle["worst"] <= 1
    records = [json.loads(p.read_text()) for p in run.glob("responses/*/*/*.cell.json")]
    assert all(record["waited_s"] >= 0 for record in records)
