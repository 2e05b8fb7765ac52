"""`evalharness score SUITE --input ROWS --output VERDICTS`: judge a file of vector rows."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

EXAMPLE = "example:\n  evalharness score bfcl --input vectors.jsonl --output verdicts.jsonl"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "score",
        help="judge a file of vector rows, offline",
        description="Judge every row of a JSON Lines file; one verdict row per input row, in the "
        "same order. A row that cannot be judged is reported with file and line and stops "
        "nothing.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suite", metavar="SUITE", help="bfcl, schema, gsm8k, or one that you added")
    parser.add_argument("--input", type=Path, required=True, metavar="FILE", help="vector rows")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="verdict rows")
    parser.add_argument(
        "--scorer", metavar="NAME", help="scorer, such as corrected or corrected/1 (the default's)"
    )


def run(args: argparse.Namespace) -> int:
    """Judge the file. Raises ScoreError (exit 2): unknown suite or scorer, unreadable file."""
    from evalharness.text import printable
    from evalharness.vectors import score_vectors, vector_suite

    suite, scorer = vector_suite(args.suite, args.scorer)
    summary = score_vectors(
        suite,
        scorer,
        source=args.input,
        target=args.output,
        report=lambda fault: sys.stderr.write(printable(fault) + "\n"),
    )
    sys.stdout.write(
        f"{suite.name} {scorer}: {summary.rows} rows, {summary.correct} correct, "
        f"{summary.wrong} wrong, {summary.unobserved} unobserved "
        f"({summary.faults} could not be judged) -> {args.output}\n"
    )
    return 0
