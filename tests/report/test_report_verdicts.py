"""Planted runs, one set for each verdict, through the command line to report.json and the exit."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from evalharness.cli.main import main
from evalharness.types import CellKey
from tests.report.plant import (
    BFCL,
    GSM8K,
    NLL,
    SCHEMA,
    Plant,
    SuiteSpec,
    even,
    paired,
    plant_run,
    write_sums,
)

SMALL_BFCL = SuiteSpec("bfcl", "tools", 64, "bfcl", "official/1")
NLL_MARGIN = {"nats_per_token": 0.01, "tail_nats": 0.5, "tail_share": 0.01}
ONE_FACTOR = {"hc": ("off", "on")}
SCHEMA_TEXT = (files("evalharness") / "formats" / "report.schema.json").read_text(encoding="utf-8")


def judge(run: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Run the command and return its exit code with the report it wrote, validated."""
    code = main(["noninferiority", str(run), "--format", "json", *options])
    report = json.loads((run / "report" / "report.json").read_text())
    jsonschema.Draft202012Validator(json.loads(SCHEMA_TEXT)).validate(report)
    assert report["headline"]["exit_code"] == code
    return code, report


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    """Return the verdict of each arm."""
    return {arm["name"]: arm["verdict"] for arm in report["arms"]}


def test_equal_arms_are_admitted(tmp_path: Path) -> None:
    suites = (BFCL, SCHEMA, GSM8K)
    plant = Plant(suites=suites, margins=dict.fromkeys(("bfcl", "schema", "gsm8k"), 0.1))
    code, report = judge(plant_run(tmp_path / "run", plant))
    assert code == 0
    assert verdicts(report) == {"hc": "admitted", "moe": "admitted", "hc+moe": "admitted"}
    assert report["flips"] == []
    counts = report["counts"][0]
    assert (counts["correct"], counts["wrong"], counts["unobserved"]) == (60, 20, 0)


def test_a_clear_loss_is_harm(tmp_path: Path) -> None:
    plant = Plant(outcomes=paired(correct=64, wins=0, losses=14, arms=("hc+moe",)))
    code, report = judge(plant_run(tmp_path / "run", plant))
    assert code == 11
    assert verdicts(report) == {"hc": "admitted", "moe": "admitted", "hc+moe": "harm shown"}
    cell = next(c for c in report["cells"] if c["arm"] == "hc+moe")
    assert (cell["table"]["wins"], cell["table"]["losses"]) == (0, 14)
    assert cell["loss_ids"] == [f"case-{i:04d}" for i in range(14)]


def test_the_worked_example_is_undecided(tmp_path: Path) -> None:
    outcomes = paired(correct=54, wins=1, losses=4, arms=("hc",))
    plant = Plant(suites=(SMALL_BFCL,), factors=ONE_FACTOR, outcomes=outcomes, concurrency=(1,))
    code, report = judge(plant_run(tmp_path / "run", plant))
    assert code == 10
    assert verdicts(report) == {"hc": "undecided"}
    (cell,) = report["cells"]
    assert (cell["control_correct"], cell["candidate_correct"]) == (54, 51)
    assert cell["p_harm"] == 0.1875
    assert (cell["lower"], cell["upper"]) == pytest.approx((-0.1373, 0.0299), abs=5e-4)
    assert cell["smallest_margin"] == pytest.approx(0.14, abs=2e-3)
    assert report["arms"][0]["cases_needed_if_equal"] > 64


@pytest.mark.parametrize("side", ["hc", "control"])
def test_unobserved_cases_that_could_change_it_are_incomplete(tmp_path: Path, side: str) -> None:
    # a hidden control case costs the candidate only where it was wrong itself: one in four
    hidden = 8 if side == "hc" else 24

    def outcomes(key: CellKey, index: int) -> str:
        return "unobserved" if key.arm == side and index < hidden else even(key, index)

    plant = Plant(factors=ONE_FACTOR, outcomes=outcomes)
    code, report = judge(plant_run(tmp_path / "run", plant))
    assert code == 12
    assert verdicts(report) == {"hc": "incomplete"}
    named = {case for row in report["unobserved"] for case in row["case_ids"]}
    assert named == {f"case-{i:04d}" for i in range(hidden)}


def test_without_a_declared_plan_nothing_is_admitted(tmp_path: Path) -> None:
    code, report = judge(plant_run(tmp_path / "run", Plant(declared=False)))
    assert code == 10
    assert set(verdicts(report).values()) == {"exploratory"}
    assert report["exploratory"]


@pytest.mark.parametrize(
    "options", [["--margin", "bfcl=0.2"], ["--alpha", "0.05"], ["--margin", "bfcl.tools=0.1"]]
)
def test_a_question_asked_afterwards_is_exploratory(tmp_path: Path, options: list[str]) -> None:
    run = plant_run(tmp_path / "run", Plant())
    assert judge(run)[0] == 0
    code, report = judge(run, *options)
    assert code == 10
    assert set(verdicts(report).values()) == {"exploratory"}


def test_the_declared_margin_may_be_repeated(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant())
    assert judge(run, "--margin", "bfcl=0.1", "--alpha", "0.025")[0] == 0


def test_no_arm_is_admitted_where_equal_launches_differ(tmp_path: Path) -> None:
    outcomes = paired(correct=64, wins=0, losses=14, arms=("aa",))
    code, report = judge(plant_run(tmp_path / "run", Plant(outcomes=outcomes)))
    assert code != 0
    assert "admitted" not in verdicts(report).values()
    assert all(row["failed"] for row in report["aa"])


def test_every_suite_and_level_must_pass(tmp_path: Path) -> None:
    def outcomes(key: CellKey, index: int) -> str:
        spoiled = (key.arm, key.suite, key.concurrency) == ("hc", "gsm8k", 4)
        return "wrong" if spoiled and index < 5 else even(key, index)

    plant = Plant(
        suites=(BFCL, GSM8K), margins={"bfcl": 0.1, "gsm8k": 0.1}, factors=ONE_FACTOR,
        outcomes=outcomes,
    )  # fmt: skip
    code, report = judge(plant_run(tmp_path / "run", plant))
    assert code == 10
    assert verdicts(report) == {"hc": "undecided"}
    assert sum(c["verdict"] == "admitted" for c in report["cells"]) == 3


def _shift(key: CellKey, index: int) -> list[float | None]:
    """The arm hc loses a twentieth of a nat a token; all arms have some noise of their own."""
    noise = 0.001 * (hash_free(key.arm) % 5)
    drop = 0.05 if key.arm == "hc" else 0.0
    return [-0.3 - drop - noise * ((index + t) % 3 - 1) for t in range(16)]


def hash_free(text: str) -> int:
    """A small number from text, equal in every process."""
    return sum(text.encode())


def test_a_shift_of_probabilities_alone_is_not_admitted(tmp_path: Path) -> None:
    plant = Plant(
        suites=(BFCL, NLL), factors=ONE_FACTOR, logprobs=_shift,
        margins={"bfcl": 0.1, "nll.decode": NLL_MARGIN},
    )  # fmt: skip
    code, report = judge(plant_run(tmp_path / "run", plant))
    assert code in (10, 11)
    assert verdicts(report)["hc"] in ("undecided", "harm shown")
    assert all(c["verdict"] == "admitted" for c in report["cells"])
    assert all(
        c["summary"]["estimate"] == pytest.approx(0.05, abs=0.01) for c in report["nll"]["cells"]
    )


REMOVED: dict[str, Callable[[CellKey], bool]] = {
    "candidate": lambda key: key.arm == "hc",
    "control": lambda key: key.arm == "control",
    "one cell of the candidate": lambda key: (key.arm, key.concurrency) == ("hc", 4),
    "one cell of the control": lambda key: (key.arm, key.concurrency) == ("control", 1),
    "everybody": lambda key: True,
}


@pytest.mark.parametrize("where", REMOVED)
@pytest.mark.parametrize("offset", [0, 3, 9])
@pytest.mark.parametrize("suite", ["bfcl", "nll"])
def test_a_tenth_of_the_rows_removed_never_admits(
    tmp_path: Path, where: str, offset: int, suite: str
) -> None:
    def drop(key: CellKey, index: int) -> bool:
        return key.suite == suite and REMOVED[where](key) and index % 10 == offset

    plant = Plant(
        suites=(BFCL, NLL), factors=ONE_FACTOR, drop=drop,
        margins={"bfcl": 0.1, "nll.decode": NLL_MARGIN},
    )  # fmt: skip
    code, report = judge(plant_run(tmp_path / "run", plant))
    assert code in (10, 11, 12)
    assert verdicts(report)["hc"] != "admitted"
    assert sum(len(row["case_ids"]) for row in report["unobserved"]) >= 8


def test_a_cell_never_run_is_incomplete(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR))
    for file in run.glob("responses/hc/*/bfcl.tools-c4-r0.*"):
        file.unlink()
    write_sums(run)
    code, report = judge(run)
    assert code == 12
    assert [row["state"] for row in report["stopped"]] == ["missing"]
