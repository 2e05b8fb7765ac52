"""The study: every seed's factorial with its verdicts, and the A/A floor by concurrency."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.demo_model.digests import tensors_sha256
from tools.demo_model.make_model import WEIGHTS
from tools.demo_model.plant_fault import Quantise
from tools.sensitivity.calibrate import planted
from tools.sensitivity.cases import Plan, harm_power, has_schema, recipe, write_manifest
from tools.sensitivity.launching import (
    BAD,
    EXPECTED,
    HARMLESS,
    Serving,
    plan_block,
    prefix_factor,
    run,
    spent_s,
    weights_factor,
)

GATE = 16
FLOOR_LEVELS = (1, 4, 8, 16)
FLOOR_SEED = 7
FLOOR_SIZES = {"bfcl": 24, "nll": 32}
NLL_MARGIN = {"nats_per_token": 0.01, "tail_nats": 0.5, "tail_share": 0.05}
# What the fault is chosen to do, for the planned power of showing harm: shares of cases.
LOST, GAINED = 0.11, 0.01


@dataclass(frozen=True, slots=True)
class Study:
    """What is asked for."""

    serving: Serving
    folder: Path
    fault: Quantise
    plan: Plan
    seeds: Sequence[int]
    floor: bool

    def sizes(self) -> dict[str, int]:
        """Cases by suite; schema's only where the data is there."""
        suites = [s for s in self.plan.margins if s != "schema" or has_schema()]
        return {suite: self.plan.cases(suite) for suite in suites}


def collect(study: Study) -> dict[str, Any]:
    """Run every seed and the floor; return the results as one document.

    Raises RunFailed where a run ends without a verdict, ValueError where cases are too few.
    """
    bad = planted(study.serving.model, study.folder / "models", study.fault)
    seeds = [one_seed(study, seed, bad) for seed in study.seeds]
    floor = floor_of(study) if study.floor else {"seconds": 0, "aa": []}
    expected = [row["verdict"] == EXPECTED[row["arm"]] for seed in seeds for row in seed["arms"]]
    return {
        "plan": _planned(study),
        "model_tensors_sha256": tensors_sha256(study.serving.model / WEIGHTS),
        "fault": str(study.fault),
        "dtype": study.serving.dtype,
        "machine": {"cpus": os.cpu_count(), "processor": _processor()},
        "seeds": seeds,
        "floor": floor,
        "as_expected": all(expected) and len(expected) == len(EXPECTED) * len(study.seeds),
    }


def _planned(study: Study) -> dict[str, Any]:
    sizes = study.sizes()
    contrasts = len(sizes) * len(EXPECTED)
    alpha = study.plan.alpha
    return {
        "alpha": alpha,
        "power": study.plan.power,
        "discordance": study.plan.discordance,
        "concurrency": GATE,
        "suites": {
            suite: {"margin": study.plan.margins[suite], "cases": n} for suite, n in sizes.items()
        },
        "harm": {
            "lost": LOST,
            "gained": GAINED,
            "contrasts": contrasts,
            "power": harm_power(
                sizes["bfcl"], p_loss=LOST, p_win=GAINED, alpha=alpha, contrasts=contrasts
            ),
        },
    }


def one_seed(study: Study, seed: int, bad: Path) -> dict[str, Any]:
    """Draw the seed's cases, run and judge its factorial; return its row of the results."""
    folder = study.folder / f"seed-{seed}"
    sizes = study.sizes()
    name = f"sensitivity-{seed}"
    manifest = write_manifest(recipe(name, seed=seed, sizes=sizes, calibration=False), folder)
    arms = study.serving.document(
        {HARMLESS: prefix_factor(), BAD: weights_factor(study.serving.model, {"bad": bad})},
        {HARMLESS: "off", BAD: "good"},
        arms=[{HARMLESS: "on"}, {BAD: "bad"}],
        aa=True,
        order="randomized",
        plan=plan_block(
            {suite: study.plan.margins[suite] for suite in sizes},
            alpha=study.plan.alpha,
            gate=[GATE],
        ),
    )
    report = run(folder, arms=arms, manifest=manifest, concurrency=[GATE], seed=seed)
    return {
        "seed": seed,
        "plan_sha256": report["design"]["runs"][0]["plan_sha256"],
        "seconds": round(spent_s(folder)),
        "arms": [
            {"arm": arm["name"], "verdict": arm["verdict"], "reason": arm["reason"]}
            for arm in report["arms"]
        ],
        "cells": [_cell(cell) for cell in report["cells"]],
        "aa": [_aa(one) for one in report["aa"]],
    }


def _cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    kept = ["arm", "suite", "verdict", "margin", "table", "control_correct", "candidate_correct"]
    kept += ["estimate", "lower", "upper", "p", "p_harm", "p_harm_adjusted"]
    return {key: cell[key] for key in kept}


def _aa(one: Mapping[str, Any]) -> dict[str, Any]:
    row = {key: one[key] for key in ("suite", "mode", "concurrency", "failed")}
    if one["table"] is not None:
        row |= {"table": one["table"]}
    if one["nll"] is not None:
        kept = ("cases", "tokens", "estimate", "quantile_50", "quantile_99", "tail_share")
        row |= {"nll": {key: one["nll"][key] for key in kept} | {"largest": one["nll"]["largest"]}}
    return row


def floor_of(study: Study) -> dict[str, Any]:
    """Run the control twice at every concurrency; return how far the two launches differ."""
    folder = study.folder / "floor"
    document = recipe("sensitivity-floor", seed=FLOOR_SEED, sizes=FLOOR_SIZES, calibration=True)
    manifest = write_manifest(document, folder)
    arms = study.serving.document(
        {HARMLESS: prefix_factor()},
        {HARMLESS: "off"},
        arms=[{HARMLESS: "off"}],
        aa=True,
        plan=plan_block(
            {"bfcl": study.plan.margins["bfcl"], "nll.decode": NLL_MARGIN},
            alpha=study.plan.alpha,
            gate=FLOOR_LEVELS,
        ),
    )
    report = run(folder, arms=arms, manifest=manifest, concurrency=FLOOR_LEVELS, seed=FLOOR_SEED)
    return {"seconds": round(spent_s(folder)), "aa": [_aa(one) for one in report["aa"]]}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
