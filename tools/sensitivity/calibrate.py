"""Choose the fault: planted quantisations against the control, on cases the seeds never ask.

    python -m tools.sensitivity.calibrate --model .demo/model --out runs/calibration \\
        --faults 4:64,4:0,3:32 --write docs/results/sensitivity-calibration.json
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.demo_model.digests import tensors_sha256
from tools.demo_model.make_model import WEIGHTS
from tools.demo_model.plant_fault import Quantise, plant
from tools.sensitivity.cases import CATEGORIES, has_schema, recipe, write_manifest
from tools.sensitivity.launching import (
    DTYPE_HELP,
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


def planted(model: Path, folder: Path, fault: Quantise) -> Path:
    """Return a copy of the model with the fault in it, made anew unless it is of this model."""
    out = folder / f"q{str(fault).replace(':', '-')}"
    mark = out / "PLANTED.json"
    words = {"fault": str(fault), "tensors_sha256": tensors_sha256(model / WEIGHTS)}
    if mark.is_file() and json.loads(mark.read_text(encoding="utf-8")) == words:
        return out
    shutil.rmtree(out, ignore_errors=True)
    plant(model, out, quantise=fault)
    mark.write_text(json.dumps(words) + "\n", encoding="utf-8")
    return out


def calibrate(
    serving: Serving, folder: Path, faults: Sequence[Quantise], *, sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Run the control and every fault on the calibration cases; return the table."""
    models = {_level(one): planted(serving.model, folder / "models", one) for one in faults}
    manifest = write_manifest(
        recipe("calibration", seed=SEED, sizes=sizes, calibration=True), folder
    )
    margins = {suite: MARGIN for suite in sizes if sizes[suite]}
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


def main() -> int:
    """Parse the command line, run, print and keep the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, default=Path(".demo/model"))
    parser.add_argument("--out", type=Path, default=Path("runs/sensitivity-calibration"))
    parser.add_argument("--faults", default=FAULTS, help="BITS[:GROUP[:LAYERS]],...")
    parser.add_argument(
        "--dtype", choices=("bfloat16", "float32"), default="bfloat16", help=DTYPE_HELP
    )
    parser.add_argument("--bfcl", type=int, default=28 * len(CATEGORIES), help="cases")
    parser.add_argument("--schema", type=int, default=48, help="cases, where the data is there")
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    faults = [Quantise.parse(text) for text in args.faults.split(",")]
    serving = Serving(args.model.resolve(), args.dtype)
    sizes = {"bfcl": args.bfcl, "schema": args.schema if has_schema() else 0}
    try:
        table = calibrate(serving, args.out, faults, sizes=sizes)
    except (RunFailed, ValueError) as error:
        sys.stderr.write(f"calibrate: {error}\n")
        return 1
    text = json.dumps(table, indent=1) + "\n"
    print(text, end="")
    if args.write:
        args.write.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
