"""Runs of unusual shape: every page still renders, and says what is there and what is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from evalharness.report import write_report
from tests.report.plant import BFCL, NLL, Plant, SuiteSpec, even, plant_run, write_sums

ONE_FACTOR = {"hc": ("off", "on")}
NLL_MARGIN = {"nats_per_token": 0.01, "tail_nats": 0.5, "tail_share": 0.01}
SHAPES = {
    "no A/A": Plant(factors=ONE_FACTOR, aa=False),
    "control only": Plant(factors={"hc": ("off",)}),
    "no margin at all": Plant(factors=ONE_FACTOR, margins={}),
    "undeclared": Plant(factors=ONE_FACTOR, declared=False, margins={}),
    "tokens only": Plant(suites=(NLL,), factors=ONE_FACTOR, margins={"nll.decode": NLL_MARGIN}),
    "tokens without a margin": Plant(suites=(BFCL, NLL), factors=ONE_FACTOR),
    "no token ever came": Plant(
        suites=(NLL,), factors=ONE_FACTOR, margins={"nll.decode": NLL_MARGIN},
        logprobs=lambda key, index: [],
    ),
    "one case": Plant(
        suites=(SuiteSpec("bfcl", "tools", 1, "bfcl", "official/1"),), factors=ONE_FACTOR
    ),
    "three levels": Plant(factors={"kv": ("fp16", "fp8", "int4")}, sequence=("kv.fp8", "kv.int4")),
    "three factors": Plant(factors={"a": ("off", "on"), "b": ("off", "on"), "c": ("off", "on")}),
    "all wrong": Plant(factors=ONE_FACTOR, outcomes=lambda key, index: "wrong"),
    "all unobserved": Plant(factors=ONE_FACTOR, outcomes=lambda key, index: "unobserved"),
    "three replays": Plant(factors=ONE_FACTOR, replays=3, outcomes=even),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_renders(tmp_path: Path, shape: str) -> None:
    page, markdown, document = write_report(plant_run(tmp_path / "run", SHAPES[shape]))
    assert "Did the flags hurt the model?" in page.read_text()
    assert markdown.stat().st_size > 300
    assert document.stat().st_size > 1_000


def test_a_run_that_has_only_its_plan_renders(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", Plant(factors=ONE_FACTOR))
    for folder in ("responses", "scores", "arms"):
        shutil.rmtree(run / folder)
    write_sums(run)
    page, markdown, _ = write_report(run)
    assert "the cell was never run" in page.read_text()
    assert "incomplete" in markdown.read_text().splitlines()[0]
