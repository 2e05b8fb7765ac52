"""`evalharness plan`: how many cases a margin needs, and what a suite of a given size can say."""

from __future__ import annotations

import argparse
import sys

from evalharness.errors import EXIT_OK, PlanError

EXAMPLE = """\
examples:
  evalharness plan --margin 0.02 --discordance 0.05
  evalharness plan --margin 0.10 --discordance 0.05 --cases 80

A margin is a share of cases (0.02 = 2 points); the discordance is the share of cases on which
two arms differ, as an A/A run shows it.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "plan",
        help="cases needed for a margin, and the smallest margin of a suite",
        description="Before a run: how many cases a margin needs, or which margin a suite carries.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--margin", type=float, help="share of cases, e.g. 0.02 for 2 points")
    parser.add_argument(
        "--discordance", type=float, default=0.05, help="share of cases differing (default 0.05)"
    )
    parser.add_argument("--alpha", type=float, default=0.025, help="one-sided (default 0.025)")
    parser.add_argument("--power", type=float, default=0.8, help="default 0.8")
    parser.add_argument("--cases", type=int, help="size of a suite whose reach is asked")


def run(args: argparse.Namespace) -> int:
    """Print the answers and the table of cases needed."""
    from evalharness.plan_table import (
        cases_needed,
        cases_table,
        cases_text,
        reach_text,
        suite_reach,
    )

    levels = {"alpha": args.alpha, "power": args.power}
    try:
        parts = []
        if args.margin is not None:
            parts.append(cases_text(cases_needed(args.margin, args.discordance, **levels)))
        if args.cases is not None:
            reach = suite_reach(args.cases, args.discordance, margin=args.margin, **levels)
            parts.append(reach_text(reach))
        parts.append(cases_table(args.alpha))
    except ValueError as error:
        raise PlanError(f"evalharness plan: {error}") from error
    sys.stdout.write("\n\n".join(parts) + "\n")
    return EXIT_OK
