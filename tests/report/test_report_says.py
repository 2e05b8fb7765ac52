"""What a reader of report.md and the page is told: assumptions, limits, provenance, loads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evalharness.noninferiority import Asked
from evalharness.report import report_document
from evalharness.report.document import without_empty_intervals
from evalharness.report.filters import NONE, nats_span, points_span
from evalharness.report.html import render_html
from evalharness.report.markdown import render_markdown
from evalharness.runs import load_run
from evalharness.types import CellKey, sha256_hex
from tests.report.plant import BFCL, GSM8K, Plant, SuiteSpec, paired, plant_run, write_sums

ONE_FACTOR = {"hc": ("off", "on")}
NLL_MARGIN = {"nats_per_token": 0.01, "tail_nats": 0.5, "tail_share": 0.01}
FEW = SuiteSpec("bfcl", "tools", 4, "bfcl", "official/1")
SHORT_NLL = SuiteSpec("nll", "decode", 60, "nll", "raw/1")
MARGINS = {"bfcl": 0.1, "gsm8k": 0.1, "nll.decode": NLL_MARGIN}


def two_tokens(key: CellKey, index: int) -> list[float | None]:
    """Two tokens a case, alike in every arm."""
    del key, index
    return [-0.5, -0.25]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of a run as small as a demo's: nothing differs, little can be said."""
    plant = Plant(
        suites=(FEW, SHORT_NLL), factors=ONE_FACTOR, concurrency=(1, 4), margins=MARGINS,
        logprobs=two_tokens,
    )  # fmt: skip
    return report(plant_run(tmp_path_factory.mktemp("small") / "run", plant))


def report(run: Path) -> dict[str, Any]:
    return report_document([run], Asked())


def test_cases_needed_name_every_suite_and_what_is_assumed(small: dict[str, Any]) -> None:
    (arm,) = small["arms"]
    needed = {row["suite"]: row for row in arm["cases_needed"]}
    assert needed["bfcl"]["none_differed"] and needed["nll"]["if_equal"] == 183
    assert arm["cases_needed_if_equal"] == max(row["if_equal"] for row in needed.values())
    both = f"bfcl tools {needed['bfcl']['if_equal']} ("
    for text in (render_html(small), render_markdown(small).replace("\\", "")):
        assert both in text and "nll decode 183" in text and "per level" in text
        assert "if none ever differs" in text and "80% power of each cell alone" in text


def test_limits_stand_above_the_results_and_provenance_at_the_end(small: dict[str, Any]) -> None:
    text = render_markdown(small)
    limits, counts = text.index("What this run cannot say"), text.index("Correct / wrong")
    assert limits < counts < text.index("### Provenance")
    end = text[text.index("### Provenance") :].replace("\\", "")
    for words in (
        "seed 7", "`model`", "vllm 0.32.0", "2 CPU cores, no GPU", "bfcl.tools 10 points",
        "±0.01 nats", "0.5 nats", f"`{'5' * 12}`", "manifest planted", "scorer official/1",
    ):  # fmt: skip
        assert words in end, words
    assert any("under Provenance" in line for line in small["cannot_say"])


def test_a_suite_is_said_with_where_its_cases_come_from(
    small: dict[str, Any], tmp_path: Path
) -> None:
    """An entry may bear the name of a data set of which it has no case."""
    sources = {name: suite["source"] for name, suite in small["provenance"]["suites"].items()}
    assert sources == {"bfcl": "planted@1", "nll": "planted@1"}
    assert "bfcl: 4 cases of `planted@1`, tools, scorer" in render_markdown(small)
    assert "4 cases of <code>planted@1</code>, modes tools" in render_html(small)
    hub = {"kind": "hub", "id": "owner/data", "revision": "5bd0", "config": "Easy", "split": "all"}
    run = plant_run(tmp_path / "run", Plant(suites=(FEW,), factors=ONE_FACTOR, concurrency=(1,)))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["suites"]["bfcl"]["source"] = hub
    (run / "manifest.json").write_text(json.dumps(manifest))
    plan = json.loads((run / "plan.json").read_text())
    plan["manifest"]["sha256"] = sha256_hex(json.dumps(manifest))
    (run / "plan.json").write_text(json.dumps(plan))
    found = report(run)["provenance"]["suites"]["bfcl"]
    assert found["source"] == "owner/data@5bd0 (Easy, all)"
    (run / "manifest.json").unlink()
    bare = report(run)
    assert "source" not in bare["provenance"]["suites"]["bfcl"]
    assert "bfcl: 4 cases, tools" in render_markdown(bare)


def test_the_aa_launch_is_spoken_of_only_where_there_is_one(
    small: dict[str, Any], tmp_path: Path
) -> None:
    size = "the A/A launch only shows its size"
    assert size in "\n".join(small["cannot_say"])
    alone = Plant(suites=(FEW,), factors=ONE_FACTOR, concurrency=(1,), margins=MARGINS, aa=False)
    said = "\n".join(report(plant_run(tmp_path / "run", alone))["cannot_say"])
    assert "There is no A/A launch" in said and size not in said
    assert "One replay: discordance beyond the server's own noise is not estimable." in said


def test_the_plans_digest_is_called_the_plans(small: dict[str, Any]) -> None:
    digest = small["design"]["runs"][0]["plan_sha256"][:12]
    assert f"plan `{digest}`; control" in render_markdown(small)
    assert f"(plan <code>{digest}</code>)" in render_html(small)


def test_no_token_that_moved_is_said_so(small: dict[str, Any]) -> None:
    for text in (render_html(small), render_markdown(small)):
        assert "none: every token delta is exactly zero" in text
        assert "assume" in text and "one moved token in a" in text
        assert "+0.00000 at" not in text


def test_a_token_that_moved_is_named(tmp_path: Path) -> None:
    def logprobs(key: CellKey, index: int) -> list[float | None]:
        return [-2.0 if key.arm == "hc" and index == 7 else -0.5, -0.25]

    plant = Plant(suites=(SHORT_NLL,), factors=ONE_FACTOR, concurrency=(1,), margins=MARGINS,
                  logprobs=logprobs)  # fmt: skip
    document = report(plant_run(tmp_path / "run", plant))
    assert "+1.50000 at `case-0007`, token 0" in render_markdown(document)
    assert "none: every token" not in render_markdown(document)


def test_an_interval_without_width_is_none(small: dict[str, Any]) -> None:
    flat = {"interval": [0.0, 0.0], "lower": 1.0, "upper": 1.0, "estimate": 0.0}
    assert without_empty_intervals([flat]) == [
        {"interval": [None, None], "lower": None, "upper": None, "estimate": 0.0}
    ]
    wide = {"interval": [-0.1, 0.1], "lower": -1.0, "upper": 1.0}
    assert without_empty_intervals(wide) == wide
    assert points_span((0.0, 0.0)) == nats_span(None) == NONE
    assert nats_span((-1e-7, 1e-7)) == "(-1e-07, +1e-07)"
    page = render_html(small)
    assert "(+0.00000, +0.00000)" not in page and "(+0.0, +0.0)" not in page
    lengths = [cell["length"]["interval"] for cell in small["cells"]]
    assert lengths == [[None, None]] * 2


def test_a_mean_of_equal_tokens_has_no_interval(small: dict[str, Any]) -> None:
    summaries = [cell[side] for cell in small["nll"]["cells"] for side in ("summary", "aa")]
    assert len(summaries) == 4
    for summary in summaries:
        assert summary["estimate"] == 0 and summary["interval"] == [None, None]
    assert "(-0.00010, +0.00010)" not in render_html(small)


def test_a_control_that_is_never_right_and_answers_cut_off_are_limits(tmp_path: Path) -> None:
    def outcome(key: CellKey, index: int) -> str:
        if key.suite == "gsm8k":
            return "wrong"
        return paired(correct=60, wins=0, losses=0, arms=())(key, index)

    plant = Plant(suites=(BFCL, GSM8K), factors=ONE_FACTOR, concurrency=(1,), margins=MARGINS,
                  outcomes=outcome)  # fmt: skip
    run = plant_run(tmp_path / "run", plant)
    for file in run.glob("scores/gsm8k.*/*/*/*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for number, row in enumerate(rows):
            row["detail"]["truncated"] = number % 4 == 0
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_sums(run)
    text = "\n".join(report(run)["cannot_say"])
    assert "gsm8k (chat): the control is right on 0 of 80 cases here: no loss can show" in text
    assert "gsm8k (chat): 25% of each arm's answers were cut off at 96 tokens" in text
    assert "bfcl (tools): the control is right on 0" not in text
    assert text.count("cut off") == 1


def test_tokens_not_known_to_be_pure_decode_are_a_limit(tmp_path: Path) -> None:
    plant = Plant(suites=(SHORT_NLL,), factors=ONE_FACTOR, concurrency=(1, 4), margins=MARGINS,
                  logprobs=two_tokens)  # fmt: skip
    run = plant_run(tmp_path / "run", plant)
    for file in run.glob("scores/nll.*/*/*/*-c4-*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        lines = (json.dumps({**row, "pure": [False, False]}) + "\n" for row in rows)
        file.write_text("".join(lines))
    write_sums(run)
    text = "\n".join(report(run)["cannot_say"])
    assert "60 cases of 2 tokens each" in text
    assert "60 at C1, 0 at C4: nothing at C4 is known to be pure decode" in text


def change_cells(run: Path, pattern: str, **changes: Any) -> None:
    for file in run.glob(f"responses/{pattern}.cell.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    write_sums(run)


def loads(document: Mapping[str, Any], arm: str) -> dict[int, Mapping[str, Any]]:
    return {row["concurrency"]: row for row in document["concurrency"] if row["arm"] == arm}


def test_the_servers_count_is_left_out_where_it_cannot_see_the_answers(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR))
    zeros = {"running_samples": [0] * 30}
    change_cells(run, "hc/*/*-c4-*", **zeros, output_tokens=2 * 80)
    change_cells(run, "aa/*/*-c*-*", **zeros)  # at C1 counts between two requests read 0
    change_cells(run, "control/*/*-c4-*", running_samples=[4], concurrency_reached=None)
    document = report(run)
    assert loads(document, "aa")[1]["reached_by"] == ["client"]
    hc, aa, control = (loads(document, arm)[4] for arm in ("hc", "aa", "control"))
    assert hc["reached_by"] == ["client"] and hc["reached_share"] == pytest.approx(0.9775)
    assert aa["reached_by"] == ["client", "server"] and aa["reached_share"] == 0
    assert control["reached_by"] == [] and control["reached_share"] is None
    text = "\n".join(document["cannot_say"])
    assert "In 1 cell the concurrency reached is not measurable (bfcl C4)" in text
    assert "1 cell reached less than 80%" in text
    page = render_html(document)
    assert "5 of 6 cells are shown" in page and "5 of 6 cells are measurable" in page
    assert "not measurable</td>" in page


def test_a_suite_smaller_than_c_is_not_called_a_slow_load(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(suites=(FEW,), factors=ONE_FACTOR, concurrency=(1, 8)))
    change_cells(run, "*/*/*-c8-*", concurrency_reached=None, running_samples=[2] * 9)
    document = report(run)
    assert [row["can_fill"] for row in loads(document, "hc").values()] == [True, False]
    text = "\n".join(document["cannot_say"])
    assert "3 cells have too few cases to keep C requests in flight (bfcl C8)" in text
    assert "They decide like any other cell" in text
    assert "reached less than" not in text


def test_an_aborted_cell_says_what_became_of_it(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR, concurrency=(1,)))
    (file,) = run.glob("responses/hc/*/*.cell.json")
    launch = int(file.parent.name)
    earlier = file.parents[1] / "009"
    earlier.mkdir()
    record = json.loads(file.read_text()) | {"state": "aborted", "reason": "stopped", "launch": 9}
    (earlier / file.name).write_text(json.dumps(record))
    name = file.name.replace(".cell.json", ".jsonl")
    (earlier / name).write_bytes((file.parent / name).read_bytes())
    write_sums(run)
    document = report(run)
    (row,) = document["stopped"]
    assert row["became"] == f"asked again in launch {launch}, complete, used"
    assert row["became"] in render_markdown(document) and row["became"] in render_html(document)
    change_cells(run, f"hc/{launch:03d}/*", state="incomplete", reason="torn")
    assert [row["became"] for row in report(run)["stopped"]] == [
        f"asked again in launch {launch}, which is incomplete",
        "nothing of it is used: its cases are unobserved",
    ]
    file.unlink()
    write_sums(run)
    assert not load_run(run).cells.get(CellKey("hc", "bfcl", "tools", 1, 0))
    became = [row["became"] for row in report(run)["stopped"]]
    assert became[0] == "not asked again: its cases are unobserved"


def test_rates_stand_beside_the_second_launch_and_are_called_no_speed_up(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR, concurrency=(1, 4)))
    change_cells(run, "aa/*/*-c1-*", wall_s=100.0)
    page = render_html(report(run))
    assert "These ratios are not speed-ups" in page
    assert "lies between 100% and 400% of the control" in page


def test_what_the_gates_p_is_and_what_the_pooled_one_is(small: dict[str, Any]) -> None:
    page = render_html(small)
    assert "that is not enough: p of the gate decides" in page
    assert "p, score only" in page
    assert "from −200 to +200 points" in page
