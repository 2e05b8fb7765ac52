"""The sensitivity study without a server: the fault, the cases, the plan, the page, the exit."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalharness.arms import load_arms_file
from evalharness.data import KNOWN, locate
from evalharness.manifest import load_manifest
from evalharness.plan_table import cases_needed
from evalharness.stats import sign_test
from tools.sensitivity import __main__ as command
from tools.sensitivity import study
from tools.sensitivity.__main__ import main
from tools.sensitivity.calibrate import chosen
from tools.sensitivity.cases import (
    CATEGORIES,
    Plan,
    drawn,
    for_calibration,
    harm_power,
    recipe,
    write_manifest,
)
from tools.sensitivity.launching import RunFailed
from tools.sensitivity.page import page

ROOT = Path(__file__).resolve().parents[2]

needs_bfcl = pytest.mark.skipif(
    locate(KNOWN["bfcl"]) is None, reason="BFCL's cases are not here: evalharness data fetch bfcl"
)


def test_rounding_is_to_the_nearest_step_of_each_group() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from tools.demo_model.plant_fault import rounded

    weight = torch.randn(5, 12, generator=torch.Generator().manual_seed(1))
    for bits, group in itertools.product((2, 3, 4, 8), (0, 4, 6)):
        found = rounded(weight, bits=bits, group=group)
        for low in range(0, 12, group or 12):
            part = weight[:, low : low + (group or 12)]
            step = part.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
            off = (found[:, low : low + (group or 12)] - part).abs()
            assert bool((off <= step / 2 + 1e-6).all())
            assert len((found[0, low : low + (group or 12)] / step[0]).round().unique()) < 2**bits
    coarse, fine = (rounded(weight, bits=bits, group=0) - weight for bits in (3, 4))
    assert float(coarse.norm()) > float(fine.norm()) > 0
    with pytest.raises(ValueError, match="do not fill a row"):
        rounded(weight, bits=4, group=5)


@pytest.mark.parametrize("text", ["9", "1:32", "4:32:1:1", "4:-1", "four"])
def test_a_quantisation_that_is_none_is_refused(text: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from tools.demo_model.plant_fault import Quantise

    with pytest.raises(ValueError):
        Quantise.parse(text)
    assert str(Quantise.parse("4:64:10")) == "4:64:10"


def test_only_the_first_layers_matrices_change(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from safetensors.torch import load_file, save_file

    from tools.demo_model.make_model import WEIGHTS
    from tools.demo_model.plant_fault import Quantise, plant

    generator = torch.Generator().manual_seed(1)
    names = [f"model.layers.{n}.mlp.up_proj.weight" for n in (0, 1, 10)]
    state = {name: torch.randn(4, 8, generator=generator).bfloat16() for name in names}
    state["model.layers.0.input_layernorm.weight"] = torch.ones(8).bfloat16()
    (tmp_path / "model").mkdir()
    save_file(state, str(tmp_path / "model" / WEIGHTS))
    assert plant(tmp_path / "model", tmp_path / "bad", quantise=Quantise(3, 4, 2)) == 2
    made = load_file(str(tmp_path / "bad" / WEIGHTS))
    changed = [name for name in state if not torch.equal(made[name].float(), state[name].float())]
    assert changed == names[:2]


def test_the_cases_are_those_of_evalharness_plan() -> None:
    plan = Plan({"bfcl": 0.1, "schema": 0.2}, discordance=0.05, alpha=0.025, power=0.8)
    assert plan.cases("schema") == cases_needed(0.2, 0.05).by_gate
    needed = cases_needed(0.1, 0.05).by_gate
    assert needed <= plan.cases("bfcl") < needed + len(CATEGORIES)
    assert plan.cases("bfcl") % len(CATEGORIES) == 0


def test_power_of_harm_is_that_of_the_products_test_enumerated() -> None:
    n, p_loss, p_win, alpha, contrasts = 40, 0.2, 0.05, 0.025, 2
    whole = 0.0
    for losses, wins in itertools.product(range(n + 1), repeat=2):
        if losses + wins > n:
            continue
        if sign_test(losses, wins).p_one_sided * contrasts <= alpha:
            ways = math.comb(n, losses) * math.comb(n - losses, wins)
            whole += (
                ways * p_loss**losses * p_win**wins * (1 - p_loss - p_win) ** (n - losses - wins)
            )
    found = harm_power(n, p_loss=p_loss, p_win=p_win, alpha=alpha, contrasts=contrasts)
    assert np.isclose(found, whole, rtol=1e-9)


@needs_bfcl
def test_seeds_draw_other_cases_and_never_the_calibrations(tmp_path: Path) -> None:
    manifests = {}
    for seed in (1, 2):
        document = recipe(f"s{seed}", seed=seed, sizes={"bfcl": 76}, calibration=False)
        manifests[seed] = load_manifest(write_manifest(document, tmp_path))
    one, two = (manifests[seed].entries["bfcl"].case_ids for seed in (1, 2))
    assert len(one) == len(two) == 76 and set(one) != set(two)
    assert manifests[1].sha256 != manifests[2].sha256
    assert not any(map(for_calibration, (*one, *two)))
    for group in CATEGORIES:
        assert sum(case.rpartition("_")[0] == group for case in one) == 19
    kept = drawn("bfcl", seed=0, take=32, group="simple_python", calibration=True)
    assert all(map(for_calibration, kept))
    again = recipe("s1", seed=1, sizes={"bfcl": 76}, calibration=False)
    assert load_manifest(write_manifest(again, tmp_path)).sha256 == manifests[1].sha256
    with pytest.raises(ValueError, match="cases wanted"):
        drawn("bfcl", seed=0, take=500, group="parallel", calibration=False)


def report(arms: Mapping[str, Any], verdicts: Mapping[str, str]) -> dict[str, Any]:
    """A judged run as `noninferiority` writes it, as far as the study reads it."""
    bad = {"both_right": 30, "wins": 2, "losses": 12, "both_wrong": 32}
    same = {"both_right": 42, "wins": 0, "losses": 0, "both_wrong": 34}
    tables = {"prefix": same, "weights": bad}
    cells = [
        {
            **{"arm": arm, "suite": "bfcl", "mode": "tools", "verdict": verdict, "margin": 0.1},
            **{"table": tables[arm], "control_correct": 42, "candidate_correct": 32},
            **{"estimate": -0.13, "lower": -0.24, "upper": -0.04, "p": 0.7, "p_harm": 0.0065},
            "p_harm_adjusted": 0.013,
        }
        for arm, verdict in verdicts.items()
    ]
    place = {"concurrency": 16, "failed": False}
    largest = {"delta": 2e-6, "case_id": "n", "position": 0, "token_id": 1}
    numbers = {"estimate": 0.0, "quantile_50": 0.0, "quantile_99": 1e-6, "tail_share": 0.0}
    nll = {"cases": 32, "tokens": 256, "largest": largest, **numbers}
    aa = [
        {"suite": "bfcl", "mode": "tools", "table": same, "nll": None, **place},
        {"suite": "nll", "mode": "decode", "table": None, "nll": nll, **place},
    ]
    said = [{"name": a, "verdict": v, "reason": "as the test says"} for a, v in verdicts.items()]
    assert arms["plan"]["gate_concurrency"]
    return {"design": {"runs": [{"plan_sha256": "a" * 64}]}, "arms": said, "cells": cells, "aa": aa}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    monkeypatch.setattr(study, "planted", lambda model, where, fault: tmp_path / "bad")
    monkeypatch.setattr(study, "tensors_sha256", lambda path: "b" * 64)
    monkeypatch.setattr(study, "has_schema", lambda: False)
    monkeypatch.setattr(command, "calibrate", lambda serving, where, faults: table())
    monkeypatch.setattr(command, "tensors_sha256", lambda path: "b" * 64)
    for name in ("CALIBRATION", "RESULTS"):
        monkeypatch.setattr(command, name, tmp_path / f"{name.lower()}.json")
    return folder


def table(**losses: float) -> dict[str, Any]:
    """A calibration's table with the given points lost."""
    points = [
        {
            "fault": fault,
            "suites": {
                "bfcl": {
                    **{"cases": 100, "control_correct": 50, "correct": 50 - lost, "wins": 0},
                    **{"losses": lost, "difference": -lost / 100},
                }
            },
        }
        for fault, lost in (losses or {"4:64": 19, "4:64:15": 9, "5:0": 4}).items()
    ]
    return {
        **{"model_tensors_sha256": "b" * 64, "dtype": "bfloat16", "concurrency": 16},
        **{"cases": {"bfcl": 100}, "points": points},
    }


def test_the_fault_nearest_to_ten_points_is_chosen_and_none_outside_five_to_fifteen() -> None:
    assert str(chosen(table())) == "4:64:15"
    assert str(chosen(table(**{"4:0": 14, "5:0": 5}))) == "4:0"
    with pytest.raises(RunFailed, match=r"points lost: 4:0 16\.0, 5:0 4\.0"):
        chosen(table(**{"4:0": 16, "5:0": 4}))


@needs_bfcl
@pytest.mark.parametrize(
    ("bad", "prefix", "code"),
    [
        ("harm shown", "admitted", 0),
        ("undecided", "admitted", 1),
        ("harm shown", "undecided", 1),
        ("admitted", "harm shown", 1),
    ],
)
def test_the_exit_code_follows_the_verdicts(
    *,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bad: str,
    prefix: str,
    code: int,
) -> None:
    seen: list[tuple[int, Mapping[str, Any]]] = []

    def judged(folder: Path, *, arms: Mapping[str, Any], seed: int, **_: object) -> dict[str, Any]:
        seen.append((seed, arms))
        (folder / "arms.yaml").write_text(json.dumps(arms))
        return report(arms, {"prefix": prefix, "weights": bad})

    monkeypatch.setattr(study, "run", judged)
    out = tmp_path / "page.md"
    words = ["--model", str(model), "--out", str(tmp_path / "runs"), "--write", str(out)]
    assert main([*words, "--seeds", "1,2"]) == code
    assert [seed for seed, _ in seen] == [1, 2, study.FLOOR_SEED]
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["as_expected"] is (code == 0)
    assert ("**not every verdict" in out.read_text()) is (code == 1)
    assert "| **4:64:15** | bfcl | 100 | 50 | 41 | 0 | 9 | -9.0 |" in out.read_text()
    assert json.loads((tmp_path / "calibration.json").read_text()) == table()
    file = load_arms_file(tmp_path / "runs" / "seed-1" / "arms.yaml")
    assert [arm.name for arm in file.arms] == ["control", "prefix", "weights"]
    assert file.aa


@needs_bfcl
def test_a_choice_made_on_this_model_is_kept_and_one_on_another_is_not(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def calibrate(serving: object, where: Path, faults: list[object]) -> dict[str, Any]:
        asked.append([str(fault) for fault in faults])
        return table()

    monkeypatch.setattr(command, "calibrate", calibrate)
    args = command.parser().parse_args(["--model", str(model), "--faults", "4:64,4:64:15,5:0"])
    path = tmp_path / "calibration.json"
    for stored, again in (
        (table(), 0),
        ({**table(), "model_tensors_sha256": "c" * 64}, 1),
        ({**table(), "dtype": "float32"}, 1),
        (table(**{"4:0": 9}), 1),
    ):
        path.write_text(json.dumps(stored))
        asked.clear()
        assert command.calibration_of(args) == table()
        assert asked == [["4:64", "4:64:15", "5:0"]] * again


def test_a_missing_model_is_a_wrong_command_line(tmp_path: Path) -> None:
    assert main(["--model", str(tmp_path / "none")]) == 2


def test_the_committed_page_is_made_of_the_committed_numbers() -> None:
    results = ROOT / "docs" / "results"
    found = json.loads((results / "sensitivity.json").read_text(encoding="utf-8"))
    calibration = json.loads((results / "sensitivity-calibration.json").read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "sensitivity.md").read_text(encoding="utf-8")
    assert page(found, calibration) == text
    assert found["as_expected"] is True
