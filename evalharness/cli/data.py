"""`evalharness data fetch|where`: get the suites' data, and see where it is found."""

from __future__ import annotations

import argparse
import sys
from typing import Any

EXAMPLE = "examples:\n  evalharness data where\n  evalharness data fetch bfcl gsm8k"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "data",
        help="fetch the suites' data, or show where it is found",
        description="Data is looked for in the folders of EVALHARNESS_DATA, then in "
        "EVALHARNESS_CACHE (~/.cache/evalharness). `fetch` downloads what is in neither: BFCL "
        "from its wheel, without dependencies; the others by `datasets` at a pinned revision.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    fetch = actions.add_parser("fetch", help="download what is not here yet")
    fetch.add_argument("names", nargs="*", metavar="NAME", help="known sources (default: all)")
    actions.add_parser("where", help="one line per known source")


def run(args: argparse.Namespace) -> int:
    """Fetch or show. Raises ManifestError (exit 2) where data cannot be had."""
    from evalharness.data import KNOWN, fetch, locate, rows
    from evalharness.errors import ManifestError

    if args.action == "where":
        for name, source in KNOWN.items():
            path = locate(source)
            found = str(path) if path else f"not here; `evalharness data fetch {name}`"
            sys.stdout.write(f"{name:15} {source.label:50} {found}\n")
        return 0
    names = args.names or list(KNOWN)
    if unknown := [name for name in names if name not in KNOWN]:
        raise ManifestError(f"unknown data {', '.join(unknown)}; known are {', '.join(KNOWN)}")
    for name in names:
        path = fetch(KNOWN[name])
        sys.stdout.write(f"{name}: {len(rows(KNOWN[name]))} rows in {path}\n")
    return 0
