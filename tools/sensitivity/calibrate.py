"""Choose the fault: planted quantisations against the control, on cases the seeds never ask."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.demo_model.digests import tensors_sha256
from tools.demo_model.make_model import WEIGHTS
from tools.demo_model.plant_fault import Quantise, plant
from tools.sensitivity.cases import CATEGORIES, has_schema, recipe, write_manifest
from tools.sensitivity.launching import (
    RunFailed,
    Serving,
    plan_block,
    run,
    weights_factor,
)

CONCURRENCY = 16
# Drawn once, in an order of its own, from the third of the cases that is kept for this.
SEED = 0
MARGIN = 0.1
FAULTS = "4:64,4:64:15,5:0"
TARGET, WITHIN = 0.1, (0.05, 0.15)
SIZES = {"bfcl": 28 * len(CATEGORIES), "schema": 48}


def planted(model: Path, folder: Path, fault: Quantise) -> Path:
    """Return a copy of the model with the fault in it, made anew unless it is of this model."""
    out = folder / _level(fault)
    mark = out / "PLANTED.json"
    words = {"fault": str(fault), "tensors_sha256": tensors_sha256(model / WEIGHTS)}
    if mark.is_file() and json.loads(mark.read_text(encoding="utf-8")) == words:
        return out
    shutil.rmtree(out, ignore_errors=True)
    plant(model, out, quantise=fault)
    mark.write_text(json.dumps(words) + "\n", encoding="utf-8")
    return out


def calibrate(serving: Serving, folder: Path, faults: Sequence[Quantise]) -> dict[str, Any]:
    """Run the control and every fault on the calibration cases; return the table."""
    sizes = {suite: n for suite, n in SIZES.items() if suite != "schema" or has_schema()}
    models = {_level(one): planted(serving.model, folder / "models", one) for one in faults}
    manifest = write_manifest(
        recipe("calibration", seed=SEED, sizes=sizes, calibration=True), folder
    )
    margins = dict.fromkeys(sizes, MARGIN)
    arms = serving.document(
        {"weights": weights_factor(serving.model, models)},
        {"weights": "good"},
        aa=False,
        plan=plan_block(margins, alpha=0.025, gate=[CONCURRENCY]),
    )
    report = run(folder, arms=arms, manifest=manifest, concurrency=[CONCURRENCY], seed=SEED)
    return {
        "model_tensors_sha256": tensors_sha256(serving.model / WEIGHTS),
        "dtype": serving.dtype,
        "concurrency": CONCURRENCY,
        "cases": {suite: entry["cases"] for suite, entry in report["design"]["suites"].items()},
        "points": [_point(one, report) for one in faults],
    }


def _level(fault: Quantise) -> str:
    return f"q{str(fault).replace(':', '-')}"


def _point(fault: Quantise, report: Mapping[str, Any]) -> dict[str, Any]:
    names = (f"weights={_level(fault)}", "weights")
    cells = [cell for cell in report["cells"] if cell["arm"] in names]
    return {
        "fault": str(fault),
        "suites": {
            cell["suite"]: {
                "cases": sum(cell["table"].values()),
                "control_correct": cell["control_correct"],
                "correct": cell["candidate_correct"],
                "wins": cell["table"]["wins"],
                "losses": cell["table"]["losses"],
                "difference": cell["estimate"],
            }
            for cell in cells
        },
    }


def chosen(table: Mapping[str, Any]) -> Quantise:
    """Return the fault whose loss in BFCL is nearest to ten points.

    Raises RunFailed where none loses between five and fifteen.
    """
    lost = {one["fault"]: -one["suites"]["bfcl"]["difference"] for one in table["points"]}
    nearest = min(lost, key=lambda fault: abs(lost[fault] - TARGET))
    low, high = WITHIN
    if not low <= lost[nearest] <= high:
        found = ", ".join(f"{fault} {100 * share:.1f}" for fault, share in lost.items())
        raise RunFailed(
            f"no fault loses {100 * low:g} to {100 * high:g} points of BFCL (points lost: "
            f"{found}); give others with --faults"
        )
    return Quantise.parse(nearest)
