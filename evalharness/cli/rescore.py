"""`evalharness rescore RUN`: score stored responses again, offline, and show what changed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalharness.cli.executors import add_cluster_options, connected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evalharness.manifest import Entry
    from evalharness.scoring import ScoringSummary
    from evalharness.scoring_cell import Change

EXAMPLE = (
    "examples:\n"
    "  evalharness rescore runs/demo                      every scorer version\n"
    "  evalharness rescore runs/demo --scorer corrected   and the verdicts it changes, by rule\n"
    "  evalharness rescore runs/* --executor ray          many runs, on a cluster"
)


def add_parser(subparsers: Any) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "rescore",
        help="score a run's stored responses again, offline",
        description="Score stored responses without a server or network. Scores of another "
        "version go beside the old ones, never over them; each verdict that differs from the "
        "declared scorer's is printed, with the rule. Repeated, it gives the same bytes: a stored "
        "score file that a scorer no longer reproduces is named, kept, and makes the exit code "
        "12, as does a cell whose stored responses are damaged: that one gets no scores.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    parser.add_argument(
        "--scorer",
        action="append",
        default=[],
        metavar="[SUITE=]NAME",
        help="scorer, such as corrected or bfcl=corrected/1; repeatable (default: all)",
    )
    add_cluster_options(parser)


def run(args: argparse.Namespace) -> int:
    """Score the runs again. Raises HarnessError (exit 2) where one cannot be read."""
    from evalharness.errors import EXIT_INCOMPLETE, EXIT_OK
    from evalharness.text import printable

    with connected(args) as on_cluster:
        summary = (_on_cluster if on_cluster else _here)(args.runs, args.scorer)
    for fault in summary.faults:
        sys.stderr.write(f"{printable(fault)}\n")
    for place in summary.differing:
        sys.stderr.write(
            f"{printable(place)}; the stored file is kept: if it was damaged, delete that file "
            "and rescore again; scores of a changed scorer need a new version number\n"
        )
    _print(_summary(summary))
    return EXIT_INCOMPLETE if summary.faults or summary.differing else EXIT_OK


def _here(runs: Sequence[Path], asked: list[str]) -> ScoringSummary:
    from evalharness.manifest import frozen_manifest
    from evalharness.scoring import ScoringSummary, score_with

    summary = ScoringSummary()
    for run_dir in runs:
        wanted = _wanted(frozen_manifest(run_dir).entries, asked)
        summary.merge(score_with(run_dir, wanted, on_change=_print_change))
    return summary


def _on_cluster(runs: Sequence[Path], asked: list[str]) -> ScoringSummary:
    from evalharness.cluster.datasets import score_cells
    from evalharness.manifest import frozen_manifest
    from evalharness.scoring import ScoringSummary, cell_jobs

    jobs = []
    for run_dir in (run_dir.resolve() for run_dir in runs):
        wanted = _wanted(frozen_manifest(run_dir).entries, asked)
        jobs += [(run_dir, job) for job in cell_jobs(run_dir, wanted)]
    summary = ScoringSummary()
    for result, changes in score_cells(jobs):
        summary.add(result)
        for change in changes:
            _print_change(change)
    return summary


def _print_change(change: Change) -> None:
    from evalharness.text import printable

    _print(printable(str(change)))


def _wanted(entries: Mapping[str, Entry], asked: list[str]) -> dict[str, list[str]]:
    """Return entry name -> scorer versions; a bare name goes to every suite that has it."""
    from evalharness.errors import ScoreError
    from evalharness.registry import suite_named
    from evalharness.scoring import all_versions
    from evalharness.vectors import pick_scorer

    if not asked:
        return all_versions(entries)
    suites = {name: suite_named(entry.suite) for name, entry in entries.items()}
    wanted: dict[str, list[str]] = {}
    for item in asked:
        target, mark, name = item.rpartition("=")
        if mark and target not in suites:
            raise ScoreError(f"--scorer {item}: the run has {', '.join(suites)}")
        found = False
        for entry, suite in suites.items():
            if mark and entry != target:
                continue
            versions = [*suite.scorers, *suite.token_scorers]
            if mark or any(name in (one, one.partition("/")[0]) for one in versions):
                wanted.setdefault(entry, []).append(pick_scorer(suite, name))
                found = True
        if not found:
            raise ScoreError(f"--scorer {item}: no suite of the run has it; see `manifest show`")
    return wanted


def _summary(summary: ScoringSummary) -> str:
    return (
        f"{summary.cells} cells, {summary.rows} responses: {len(summary.written)} score files "
        f"written, {len(summary.unchanged)} byte-identical, {len(summary.differing)} differing; "
        f"{summary.changes} verdicts differ from the declared scorer's; "
        f"{len(summary.faults)} faults in stored responses"
    )


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
