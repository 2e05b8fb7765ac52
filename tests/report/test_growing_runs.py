"""Runs of new cases through the command line: evidence adds up, reruns and mixtures are refused."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from evalharness.cli.main import main
from tests.report.plant import BFCL, NLL, Plant, SuiteSpec, even, paired, plant_run, write_sums

SCHEMA = json.loads((files("evalharness") / "formats" / "growing.schema.json").read_text())
ONE_FACTOR = {"hc": ("off", "on")}
BATCH = SuiteSpec("bfcl", "tools", 64, "bfcl", "official/1")


def batches(folder: Path, count: int, **changed: Any) -> list[str]:
    """Plant `count` runs of 64 new cases each; returns their paths."""
    paths = []
    for number in range(count):
        values = {
            "suites": (BATCH,), "factors": ONE_FACTOR, "concurrency": (1,),
            "case_prefix": f"batch{number}", "created_utc": f"2026-11-{number + 1:02d}T00:00:00Z",
        } | changed  # fmt: skip
        paths.append(str(plant_run(folder / f"run{number}", Plant(**values))))
    return paths


def judge(paths: list[str], *options: str) -> tuple[int, dict[str, Any]]:
    """Run the command; return its exit code and the validated document."""
    code = main(["noninferiority", "--new-cases", *paths, *options])
    document = json.loads((Path(paths[0]) / "report-growing" / "growing.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["headline"]["exit_code"] == code
    return code, document


def test_evidence_grows_until_it_admits(tmp_path: Path) -> None:
    paths = batches(tmp_path, 6, margins={"bfcl": 0.05})
    assert judge(paths[:1])[0] == 10
    code, document = judge(paths)
    assert code == 0
    assert document["arms"][0]["verdict"] == "admitted"
    (cell,) = document["cells"]
    assert cell["cases"] == 384
    assert cell["e_value"] >= cell["threshold"] == pytest.approx(40)
    assert cell["path"][-1] == [384, pytest.approx(cell["e_value"])]


def test_the_order_on_the_command_line_does_not_matter(tmp_path: Path) -> None:
    paths = batches(tmp_path, 3)
    first = judge(paths)[1]
    again = judge([paths[0], paths[2], paths[1]])[1]
    assert again == first


def test_losses_are_no_evidence(tmp_path: Path) -> None:
    outcomes = paired(correct=48, wins=0, losses=6, arms=("hc",))
    assert judge(batches(tmp_path, 6, outcomes=outcomes))[0] == 10


def test_a_failing_aa_launch_admits_nobody(tmp_path: Path) -> None:
    outcomes = paired(correct=48, wins=0, losses=12, arms=("aa",))
    code, document = judge(batches(tmp_path, 4, outcomes=outcomes))
    assert code == 10
    assert document["noise"]


def test_rows_removed_from_either_side_do_not_admit(tmp_path: Path) -> None:
    for side in ("hc", "control"):
        paths = batches(
            tmp_path / side, 4, drop=lambda key, i, side=side: key.arm == side and i % 10 == 0
        )
        assert judge(paths)[0] == 10


def test_an_undeclared_plan_is_exploratory(tmp_path: Path) -> None:
    code, document = judge(batches(tmp_path, 4, declared=False))
    assert code == 10
    assert document["arms"][0]["verdict"] == "exploratory"


def test_a_route_that_never_ran_is_incomplete_here_too(tmp_path: Path) -> None:
    paths = batches(tmp_path, 6, margins={"bfcl": 0.05})
    last = Path(paths[-1])
    plan = json.loads((last / "plan.json").read_text())
    plan["arms"][1]["env"]["VLLM_SM70_HC"] = "1"
    (last / "plan.json").write_text(json.dumps(plan))
    for path in last.glob("arms/hc/*/server.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"route_hits": []}))
    write_sums(last)
    code, document = judge(paths[-1:])
    (arm,) = document["arms"]
    assert (code, arm["verdict"]) == (12, "incomplete")
    assert "VLLM_SM70_HC=1 was asked for, but no process reported route hits" in arm["reason"]


def test_a_log_probability_gate_keeps_an_arm_undecided(tmp_path: Path) -> None:
    margins = {
        "bfcl": 0.1,
        "nll.decode": {"nats_per_token": 0.01, "tail_nats": 0.5, "tail_share": 0.01},
    }
    code, document = judge(batches(tmp_path, 4, suites=(BATCH, NLL), margins=margins))
    assert code == 10
    assert "log-probability" in document["arms"][0]["reason"]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"case_prefix": "batch0"}, "come twice"),
        ({"margins": {"bfcl": 0.2}}, "margins"),
        ({"suites": (SuiteSpec("bfcl", "tools", 64, "bfcl", "corrected/1"),)}, "scorers"),
        ({"concurrency": (8,)}, "concurrency"),
        ({"factors": {"moe": ("off", "on")}}, "arms"),
    ],
)
def test_reruns_and_other_questions_are_refused(
    tmp_path: Path, changed: dict[str, Any], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = batches(tmp_path / "one", 1)
    other = batches(tmp_path / "other", 2, **changed)
    assert main(["noninferiority", "--new-cases", *one, other[1]]) == 2
    assert named in capsys.readouterr().err


def test_a_run_given_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = batches(tmp_path, 1)
    for option in ([], ["--new-cases"]):
        assert main(["noninferiority", *option, path, path]) == 2
        assert "twice" in capsys.readouterr().err


def test_the_page_is_inert_and_complete(tmp_path: Path) -> None:
    paths = batches(tmp_path, 2, outcomes=even, suites=(BFCL,), factors={"hc": ("off", "on")})
    judge(paths)
    page = (Path(paths[0]) / "report-growing" / "index.html").read_text()
    assert "default-src" in page
    assert "style=" not in page.split("</style>")[1]
    assert 'role="img"' in page
