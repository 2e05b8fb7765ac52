"""`evalharness watch RUN`: the state of a run from another terminal, read-only."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from evalharness.cli.ranges import number

EXAMPLE = "example:\n  evalharness watch runs/demo\n  evalharness watch runs/demo --once"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "watch",
        help="watch a run from another terminal",
        description="Show what a run has done and what is in progress. Reads only; works on a run "
        "in progress, on a finished one, and on one that was killed.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--once", action="store_true", help="print the state once and end")
    every = number(least=0.0, most=86_400.0)
    parser.add_argument("--every", type=every, default=1.0, metavar="S", help="seconds (1)")


def run(args: argparse.Namespace) -> int:
    """Show the state until the run is complete or Ctrl-C."""
    import time

    from rich.console import Console
    from rich.live import Live

    from evalharness.watching import read_state, state_table

    state = read_state(args.run)
    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
    if args.once or not console.is_terminal:
        if not console.is_terminal:
            console.width = 120
        console.print(state_table(state))
        return 0
    try:
        with Live(state_table(state), console=console, auto_refresh=False) as live:
            while not state.complete:
                time.sleep(max(0.1, args.every))
                state = read_state(args.run)
                live.update(state_table(state), refresh=True)
    except KeyboardInterrupt:
        return 0  # the ordinary way to end watching
    return 0
