"""Known harm must be shown and a harmless flag admitted, at the planned cases, seed after seed.

    python -m tools.sensitivity --model .demo/model --seeds 1,2,3 --out runs/sensitivity \\
        --write docs/sensitivity.md

Each seed draws the planned number of cases, plants the fault into a copy of the model, and runs
and judges a real `evalharness factorial` of four launches: the control, prefix caching, the bad
weights and the A/A. One more run measures the A/A floor at every concurrency. Given again after
an interruption it continues. Exit code 0: every verdict is the expected one; 1: one is not, or a
run failed; 2: the command line is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tools.demo_model.plant_fault import Quantise
from tools.sensitivity.cases import Plan
from tools.sensitivity.launching import DTYPE_HELP, RunFailed, Serving
from tools.sensitivity.page import page
from tools.sensitivity.study import Study, collect

ROOT = Path(__file__).resolve().parents[2]
FAULT = "4:0"
CALIBRATION = Path("docs/results/sensitivity-calibration.json")
RESULTS = Path("docs/results/sensitivity.json")


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    made = argparse.ArgumentParser(prog="python -m tools.sensitivity", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("--model", type=Path, default=Path(".demo/model"))
    made.add_argument("--out", type=Path, default=Path("runs/sensitivity"))
    made.add_argument("--seeds", type=_numbers, default=(1, 2, 3), help="1,2,3")
    made.add_argument("--fault", type=Quantise.parse, default=FAULT, help=f"({FAULT})")
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
        "--write", type=Path, metavar="PAGE", help=f"write the page, and {RESULTS} with it"
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


def study_of(args: argparse.Namespace) -> Study:
    """Return what the command line asks for."""
    margins = {"bfcl": args.margin}
    if args.schema_margin:
        margins["schema"] = args.schema_margin
    return Study(
        serving=Serving(args.model.resolve(), args.dtype),
        folder=args.out,
        fault=args.fault,
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
        found = collect(study_of(args))
    except (RunFailed, ValueError) as error:
        sys.stderr.write(f"sensitivity: {error}\n")
        return 1
    calibration = ROOT / CALIBRATION
    points = json.loads(calibration.read_text("utf-8")) if calibration.is_file() else None
    text = page(found, points)
    print(text, end="")
    if args.write:
        args.write.write_text(text, encoding="utf-8")
        (ROOT / RESULTS).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if found["as_expected"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
