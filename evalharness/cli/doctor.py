"""`evalharness doctor`: what can run here, one line each, with the remedy where something lacks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

EXAMPLE = "example:\n  evalharness doctor\n  evalharness doctor --python /opt/vllm/bin/python"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "doctor",
        help="say what can run here, and what is missing",
        description="Check Python, vLLM, GPUs, data, disk and memory; one line each, with the "
        "remedy. Exit code 0 if a factorial can be run here, 2 if something needed is missing.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--python", default=sys.executable, help="the Python that an arm would use (this one)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="where runs would be written (.)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the checks; 0 if nothing needed is missing, else 2."""
    from evalharness.doctoring import examine
    from evalharness.text import printable

    marks = {"ok": "ok  ", "note": "note", "missing": "MISS"}
    missing = False
    for check in examine(python=args.python, folder=args.out):
        missing = missing or check.state == "missing"
        remedy = f" -> {check.remedy}" if check.remedy else ""
        line = f"{marks[check.state]} {check.name:<10} {check.found}{remedy}"
        sys.stdout.write(printable(line) + "\n")
    return 2 if missing else 0
