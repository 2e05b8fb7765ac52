"""Known harm must be shown and a harmless flag admitted, at the planned cases, seed after seed.

    python -m tools.sensitivity --model .demo/model --seeds 1,2,3 --out runs/sensitivity \\
        --write docs/sensitivity.md

First a fault that costs about ten points is chosen on cases of its own, unless the page's numbers
have the choice for this very model. Then each seed draws the planned number of cases and runs and
judges a real `evalharness factorial` of four launches: the control, prefix caching, a copy of the
model with the fault, and the A/A. One more run measures the A/A floor at every concurrency. Given
again after an interruption it continues. Exit code 0: every verdict is the expected one; 1: one is
not, or a run failed; 2: the command line is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tools.demo_model.digests import tensors_sha256
from tools.demo_model.make_model import WEIGHTS
from tools.demo_model.plant_fault import Quantise
from tools.sensitivity.calibrate import FAULTS, calibrate, chosen
from tools.sensitivity.cases import Plan
from tools.sensitivity.launching import DTYPE_HELP, RunFailed, Serving
from tools.sensitivity.page import page
from tools.sensitivity.study import Study, collect

ROOT = Path(__file__).resolve().parents[2]
CALIBRATION = Path("docs/results/sensitivity-calibration.json")
RESULTS = Path("docs/results/sensitivity.json")


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(prog="python -m tools.sensitivity", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("--model", type=Path, default=Path(".demo/model"))
    made.add_argument("--out", type=Path, default=Path("runs/sensitivity"))
    made.add_argument("--seeds", type=_numbers, default=(1, 2, 3), help="1,2,3")
    made.add_argument("--faults", default=FAULTS, help=f"BITS[:GROUP[:LAYERS]],... ({FAULTS})")
    made.add_argument("--margin", type=float, default=0.05, help="of BFCL, a share of cases (0.05)")
    made.add_argument("--schema-margin", type=float, default=0.15, help="0: no schema cases (0.15)")
    made.add_argument("--discordance", type=float, default=0.02, help="assumed, if equal (0.02)")
    made.add_argument("--alpha", type=float, default=0.025, help="one-sided (0.025)")
    made.add_argument("--power", type=float, default=0.8, help="(0.8)")
    made.add_argument(
        "--dtype", choices=("bfloat16", "float32"), default="bfloat16", help=DTYPE_HELP
    )
    made.add_argument("--no-floor", action="store_true", help="no A/A floor at C1, 4, 8, 16")
    made.add_argument(
        "--write", type=Path, metavar="PAGE", help=f"write the page, and {RESULTS.parent}"
    )
    return made


def _numbers(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{text!r}: expected different whole numbers, as 1,2,3")
    return found


def calibration_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the calibration's table: the committed one if it is of this model and these faults,
    else a new one."""
    path = ROOT / CALIBRATION
    if path.is_file():
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        same = table["model_tensors_sha256"] == tensors_sha256(args.model / WEIGHTS)
        faults = ",".join(point["fault"] for point in table["points"])
        if same and (faults, table["dtype"]) == (args.faults, args.dtype):
            return table
    serving = Serving(args.model.resolve(), args.dtype)
    wanted = [Quantise.parse(text) for text in args.faults.split(",")]
    return calibrate(serving, args.out / "calibration", wanted)


def study_of(args: argparse.Namespace, fault: Quantise) -> Study:
    """Return what the command line asks for."""
    margins = {"bfcl": args.margin}
    if args.schema_margin:
        margins["schema"] = args.schema_margin
    return Study(
        serving=Serving(args.model.resolve(), args.dtype),
        folder=args.out,
        fault=fault,
        plan=Plan(margins, args.discordance, args.alpha, args.power),
        seeds=args.seeds,
        floor=not args.no_floor,
    )


def main(argv: list[str] | None = None) -> int:
    """Run the study, print and keep what it found; see the module's text for the exit code."""
    args = parser().parse_args(argv)
    if not (args.model / "config.json").is_file():
        sys.stderr.write(f"sensitivity: no model at {args.model}: run `make model`\n")
        return 2
    try:
        calibration = calibration_of(args)
        found = collect(study_of(args, chosen(calibration)))
    except (RunFailed, ValueError) as error:
        sys.stderr.write(f"sensitivity: {error}\n")
        return 1
    text = page(found, calibration)
    print(text, end="")
    if args.write:
        args.write.write_text(text, encoding="utf-8")
        for name, document in ((RESULTS, found), (CALIBRATION, calibration)):
            text = json.dumps(document, indent=1) + "\n"
            (ROOT / name).write_text(text, encoding="utf-8")
    return 0 if found["as_expected"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
