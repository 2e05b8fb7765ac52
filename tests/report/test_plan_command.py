"""`evalharness plan`: the numbers of the published table, and bad input without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalharness.cli.main import main
from tests.report.plant import Plant, plant_run

MANIFESTS = Path(__file__).parents[2] / "manifests"


def test_cases_for_a_margin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--margin", "0.02", "--discordance", "0.05"]) == 0
    assert "1067 cases if the arms are equal" in capsys.readouterr().out


def test_the_smallest_margin_of_a_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--cases", "80"]) == 0
    assert "9.4" in capsys.readouterr().out


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan"]) == 0
    out = capsys.readouterr().out
    for cell in ("549/704", "1067/1413", "2005/2676", "55/64"):
        assert cell in out


def test_sizes_come_from_a_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = plant_run(tmp_path / "run", Plant())
    assert main(["plan", "--manifest", str(run / "manifest.json")]) == 0
    assert "bfcl: 80 cases" in capsys.readouterr().out


def test_a_manifests_suites_are_planned_by_the_rules_of_their_kind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "--manifest", str(MANIFESTS / "demo-small.json")]) == 0
    parts = dict(part.split(": ", 1) for part in capsys.readouterr().out.split("\n\n")[:5])
    assert parts["bfcl"].count("61.18 points") == 2, "80% power asks no less than the best case"
    assert parts["speed"] == "measured, it gates nothing"
    assert "points" not in parts["nll"]
    assert "at least 60 cases: too few, no margin can be admitted" in parts["nll"]
    assert "they bound the tail share to 0.00513 at best (about 40.1 tokens a case)" in parts["nll"]


def test_data_that_is_not_here_is_not_needed_to_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.json"
    text = (MANIFESTS / "nll-demo.json").read_text(encoding="utf-8")
    file.write_text(text.replace('"nll_demo"', '"nll_nowhere"'), encoding="utf-8")
    assert main(["plan", "--manifest", str(file)]) == 0
    assert "divided by the tokens of a case" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        ["--margin", "2"],
        ["--margin", "nan"],
        ["--alpha", "0.7"],
        ["--cases", "0"],
        ["--power", "x"],
    ],
)
def test_values_out_of_range_are_usage_errors(options: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["plan", *options])
    assert stopped.value.code == 2


@pytest.mark.parametrize(
    "options", [["--margin", "bcfl=0.05"], ["--margin", "bfcl.chat=0.05"], ["--scorer", "x=y/1"]]
)
def test_a_suite_that_the_run_does_not_have_is_named(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = plant_run(tmp_path / "run", Plant())
    assert main(["noninferiority", str(run), *options]) == 2
    assert "bfcl.tools" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"suites": 3}'])
def test_a_file_that_is_no_manifest(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.json"
    file.write_text(text)
    assert main(["plan", "--manifest", str(file)]) == 2
    assert "m.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--margin", "bfcl"], ["--margin", "bfcl=0"], ["--margin", "bfcl=2"],
        ["--margin", "bfcl=a"], ["--margin", "nll.decode=1,2"], ["--alpha", "0"],
        ["--format", "pdf"], ["--format", ""], ["--scorer", "=x"],
    ],
)  # fmt: skip
def test_bad_options_of_noninferiority_say_what_was_expected(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["noninferiority", str(tmp_path), *options]) == 2
    assert "expected" in (message := capsys.readouterr().err) or "not a" in message
