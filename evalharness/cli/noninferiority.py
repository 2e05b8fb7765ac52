"""`evalharness noninferiority`: the verdict of a run, its report, and an exit code for scripts."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from evalharness.cli.executors import add_cluster_options, connected
from evalharness.errors import PlanError

if TYPE_CHECKING:
    from evalharness.noninferiority import Asked, MarginValue

EXAMPLE = """\
examples:
  evalharness noninferiority runs/demo
  evalharness noninferiority runs/demo --margin bfcl=0.05 gsm8k=0.03    # exploratory
  evalharness noninferiority runs/a runs/b                              # replays of one plan
  evalharness noninferiority --new-cases runs/a runs/b                  # a suite that grows
  evalharness noninferiority --each runs/* --executor ray               # many runs, each alone

exit codes: 0 every arm admitted, 10 undecided or exploratory, 11 harm shown, 12 incomplete
"""
FORMATS = ("html", "md", "json")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "noninferiority",
        help="judge a run against its frozen plan and write the report",
        description="Judge every arm of one run, or of several replays of one plan.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    parser.add_argument(
        "--margin",
        nargs="+",
        action="extend",
        default=[],
        metavar="SUITE=SHARE",
        help="another margin, a share of cases (0.05 = 5 points); for log-probabilities "
        "nll.decode=NATS_PER_TOKEN,TAIL_NATS,TAIL_SHARE. A margin that the plan did not freeze "
        "gives exploratory verdicts",
    )
    parser.add_argument("--alpha", type=float, help="another one-sided alpha; exploratory")
    parser.add_argument(
        "--scorer",
        nargs="+",
        action="extend",
        default=[],
        metavar="SUITE=VERSION",
        help="read another scorer's stored scores, e.g. bfcl=corrected/1; exploratory",
    )
    parser.add_argument(
        "--new-cases",
        action="store_true",
        help="the runs hold new cases, not replays: always-valid verdicts, so that a suite may "
        "grow until they decide",
    )
    parser.add_argument(
        "--each",
        action="store_true",
        help="judge every run alone: its report, a line on it, and (--out) one table of all",
    )
    add_cluster_options(parser)
    parser.add_argument(
        "--format", default="html,md,json", help="any of html,md,json (default: all)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the report (default: RUN/report), or of --each's runs.json",
    )


def run(args: argparse.Namespace) -> int:
    """Judge, write the report, print the verdicts; return the exit code."""
    from evalharness.noninferiority import Asked
    from evalharness.report import report_document, write_document
    from evalharness.report.terminal import print_verdicts

    asked = Asked(
        margins=parse_margins(args.margin),
        alpha=_alpha(args.alpha),
        scorers=_pairs(args.scorer, "--scorer"),
    )
    formats = _formats(args.format)
    if args.each:
        return _run_each(args, asked, formats)
    if args.executor != "local":
        raise PlanError("--executor ray judges many runs, each alone: give --each with it")
    if args.new_cases:
        return _run_growing(args, asked, formats)
    document = report_document(args.runs, asked)
    folder = args.out or args.runs[0] / ("report" if len(args.runs) == 1 else "report-replays")
    paths = write_document(document, folder, formats)
    print_verdicts(document, paths, sys.stdout)
    return int(document["headline"]["exit_code"])


def _run_growing(args: argparse.Namespace, asked: Asked, formats: list[str]) -> int:
    from evalharness.growing import growing_document
    from evalharness.report.growing import write_growing
    from evalharness.report.terminal import print_arms
    from evalharness.runs import load_run

    runs = [load_run(path, scorers=asked.scorers) for path in args.runs]
    document = growing_document(runs, asked)
    paths = write_growing(document, args.out or args.runs[0] / "report-growing", formats)
    print_arms(document, paths, sys.stdout)
    return int(document["headline"]["exit_code"])


def _run_each(args: argparse.Namespace, asked: Asked, formats: list[str]) -> int:
    import json

    from evalharness.report.each import exit_code_of, judge_one, totals
    from evalharness.store import make_directory, write_json
    from evalharness.text import printable

    if args.new_cases:
        raise PlanError("--each judges every run alone, --new-cases all together: give one")
    runs = [run.resolve() for run in args.runs]
    summaries = []
    with connected(args) as on_cluster:
        if on_cluster:
            from evalharness.cluster.datasets import judge_each

            found = judge_each(runs, asked, formats)
        else:
            found = (judge_one(run, asked, formats) for run in runs)
        for summary in found:
            summaries.append(summary)
            said = summary.get("sentence") or summary["error"]
            sys.stdout.write(printable(f"{summary['run']}: {said}") + "\n")
    summaries.sort(key=lambda summary: str(summary["run"]))
    if args.out:
        make_directory(args.out)
        both = {"totals": totals(summaries), "runs": summaries}
        write_json(args.out / "runs.json", json.loads(json.dumps(both)))
    return exit_code_of(summaries)


def parse_margins(texts: list[str]) -> dict[str, MarginValue]:
    """Return margins by suite from SUITE=SHARE texts; PlanError says what is wrong with one."""
    from evalharness.verdicts.types import NllMargin

    margins: dict[str, MarginValue] = {}
    for name, text in _pairs(texts, "--margin").items():
        values = [_number(part, f"--margin {name}") for part in text.split(",")]
        if len(values) == 3:
            margins[name] = NllMargin(name, *values)
        elif len(values) == 1 and 0 < values[0] < 1:
            margins[name] = values[0]
        else:
            raise PlanError(
                f"--margin {name}={text}: expected a share of cases between 0 and 1 (0.05 is 5 "
                "points), or three numbers NATS_PER_TOKEN,TAIL_NATS,TAIL_SHARE"
            )
    return margins


def _pairs(texts: list[str], option: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not (name and mark and value):
            raise PlanError(f"{option} {text!r}: expected NAME=VALUE, e.g. bfcl=0.05")
        pairs[name] = value
    return pairs


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise PlanError(f"{where}: {text!r} is not a number") from error
    if not (math.isfinite(value) and value > 0):
        raise PlanError(f"{where}: {text} is not a positive number")
    return value


def _alpha(value: float | None) -> float | None:
    if value is not None and not 0 < value < 0.5:
        raise PlanError(f"--alpha {value}: expected a number between 0 and 0.5, e.g. 0.025")
    return value


def _formats(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = sorted(set(names) - set(FORMATS))
    if unknown or not names:
        raise PlanError(f"--format {text!r}: expected any of {','.join(FORMATS)}")
    return names
