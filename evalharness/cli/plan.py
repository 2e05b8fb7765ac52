"""`evalharness plan`: how many cases a margin needs, and what a suite of some size can admit."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from evalharness.errors import HarnessError, ManifestError, PlanError

EXAMPLE = """\
examples:
  evalharness plan                                       # the table
  evalharness plan --margin 0.02 --discordance 0.05      # cases for 2 points
  evalharness plan --cases 80                            # smallest margin of 80 cases
  evalharness plan --manifest manifests/demo.json        # the same for each suite
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "plan",
        help="cases needed for a margin; the smallest margin of a suite",
        description="Plan before the run: a margin chosen after the results decides nothing.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    share = _share(1.0)
    parser.add_argument(
        "--margin", type=share, help="loss to exclude, a share of cases (0.02 = 2 points)"
    )
    parser.add_argument(
        "--discordance",
        type=share,
        default=0.05,
        help="share of cases expected to differ by noise alone; the A/A row of an earlier report "
        "tells (default 0.05)",
    )
    parser.add_argument(
        "--alpha", type=_share(0.5), default=0.025, help="one-sided (default 0.025)"
    )
    parser.add_argument("--power", type=share, default=0.8, help="default 0.8")
    parser.add_argument("--cases", type=_count, help="cases of a suite: what can they admit?")
    parser.add_argument("--manifest", type=Path, help="take the suites' sizes from a manifest")


def _share(below: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < below:
            raise argparse.ArgumentTypeError(f"expected a number in (0, {below:g}), found {text!r}")
        return value

    return parse


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000_000:
        raise argparse.ArgumentTypeError(f"expected a number of cases, found {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Print what was asked for, and the table of cases where nothing was."""
    from evalharness.plan_table import cases_needed, cases_table, cases_text

    parts = []
    try:
        if args.cases is not None:
            parts.append(_reach(args, args.cases))
        if args.manifest is not None:
            parts += _manifest_parts(args)
        if args.margin is not None:
            answer = cases_needed(args.margin, args.discordance, alpha=args.alpha, power=args.power)
            parts.append(cases_text(answer))
        parts.append(cases_table(args.alpha))
    except ValueError as error:
        raise PlanError(f"plan: {error}") from error
    sys.stdout.write("\n\n".join(parts) + "\n")
    return 0


def _reach(args: argparse.Namespace, cases: int) -> str:
    from evalharness.plan_table import reach_text, suite_reach

    return reach_text(
        suite_reach(cases, args.discordance, alpha=args.alpha, power=args.power, margin=args.margin)
    )


def _manifest_parts(args: argparse.Namespace) -> Iterator[str]:
    """Yield what each suite of the manifest can admit, by the rules of its kind."""
    from evalharness.margins import SUITE_OF_NLL, SUITE_OF_SPEED
    from evalharness.plan_table import nll_reach, nll_text

    for name, suite, cases in manifest_sizes(args.manifest):
        if suite == SUITE_OF_SPEED:
            yield f"{name}: measured, it gates nothing"
        elif suite == SUITE_OF_NLL:
            tokens = _tokens_per_case(args.manifest, name)
            yield f"{name}: {nll_text(nll_reach(cases, tokens, alpha=args.alpha))}"
        else:
            yield f"{name}: {_reach(args, cases)}"


def _tokens_per_case(path: Path, name: str) -> float | None:
    """Return an NLL entry's mean tokens; None where its data is not here (planning needs none)."""
    from evalharness.cli.announcing import mean_tokens
    from evalharness.manifest import entry_cases, load_manifest

    try:
        cases, _ = entry_cases(load_manifest(path).entries[name])
    except HarnessError:
        return None
    return mean_tokens(cases) if cases else None


def manifest_sizes(path: Path) -> list[tuple[str, str, int]]:
    """Return (entry, suite, cases) of each suite; ManifestError where the file is no manifest."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["suites"].items()
        return [(name, one.get("suite", name), len(one["cases"])) for name, one in entries]
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(
            f"{path}: not a manifest ({error}); see `evalharness manifest`"
        ) from error
