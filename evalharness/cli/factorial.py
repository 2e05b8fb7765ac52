"""`evalharness factorial`: serve every arm, ask every case, keep every response, report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalharness.cli.executors import add_options, opened_executor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evalharness.arms import ArmsFile
    from evalharness.factorial.cell_run import CellSettings
    from evalharness.factorial.cells import PlannedCell
    from evalharness.factorial.executor import Executor
    from evalharness.factorial.loop import FactorialRun
    from evalharness.factorial.planning import Asked

EXAMPLE = (
    "example:\n"
    "  evalharness factorial --arms manifests/arms/demo.yaml --manifest manifests/demo.json \\\n"
    "      --concurrency 1,4,8,16 --seed 7 --out runs/demo\n"
    "The same command again continues the run: complete cells are never asked again.\n"
    "exit codes: 0 all cells complete, 2 wrong files or options, 3 a server could not be started\n"
    "or died, 12 cells are missing (--max-launches, Ctrl-C, a full disk)"
)
MAX_CONCURRENCY = 4096


def add_parser(subparsers: Any) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "factorial",
        help="run every combination of the flags over the cases",
        description="Serve every arm in its own vLLM process, ask each the same cases at the same "
        "concurrency, keep every raw response, score them and write a first report.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--arms", type=Path, required=True, metavar="FILE", help="arms file (YAML)")
    parser.add_argument("--manifest", type=Path, required=True, metavar="FILE", help="manifest")
    parser.add_argument("--out", type=Path, required=True, metavar="RUN", help="run directory")
    parser.add_argument(
        "--concurrency",
        type=concurrency_levels,
        metavar="C,...",
        help="requests in flight (the plan's gate_concurrency, else 1,4,8,16)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of order and sampling (0)")
    parser.add_argument(
        "--max-launches", type=positive, metavar="N", help="stop cleanly after N server starts"
    )
    parser.add_argument(
        "--request-timeout",
        type=seconds,
        default=600.0,
        metavar="S",
        help="bound per request (600)",
    )
    parser.add_argument(
        "--max-body-mib", type=positive, default=64, metavar="N", help="bound per reply (64)"
    )
    parser.add_argument(
        "--trust-env", action="store_true", help="use the proxy settings of the environment"
    )
    parser.add_argument(
        "--shards",
        type=positive,
        default=1,
        metavar="N",
        help="deal every case list out to N launches an arm; part of the plan (1)",
    )
    add_options(parser)


def concurrency_levels(text: str) -> tuple[int, ...]:
    """Return ascending distinct levels of `1,4,8,16`."""
    try:
        levels = sorted({int(part) for part in text.split(",")})
    except ValueError:
        levels = [0]
    if not levels or levels[0] < 1 or levels[-1] > MAX_CONCURRENCY:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected whole numbers from 1 to {MAX_CONCURRENCY}, such as 1,4,8,16"
        )
    return tuple(levels)


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def seconds(text: str) -> float:
    """Return a number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds above 0")
    return value


def run(args: argparse.Namespace) -> int:
    """Run or continue the factorial; returns the exit code (see EXAMPLE)."""
    import asyncio

    from evalharness.errors import EXIT_OK, ServerError
    from evalharness.factorial.closing import refuse_changed
    from evalharness.factorial.loop import missing_lines
    from evalharness.store import run_lock

    with run_lock(args.out), opened_executor(args) as executor:
        prepared = _prepare(args, executor)
        refuse_changed(args.out)
        _announce(prepared)
        try:
            outcome = asyncio.run(_drive(prepared, executor, args.executor))
        except ServerError:
            _say_missing(missing_lines(prepared))
            raise
        _say_missing(outcome.missing)
        reported = _report(args.out)
    if outcome.exit_code != EXIT_OK:
        _say(f"{args.out} is not complete; run the same command again to continue it")
        return int(outcome.exit_code)
    return reported


def _say_missing(lines: Sequence[str]) -> None:
    for line in lines[:40]:
        _say(line)
    if len(lines) > 40:
        _say(f"... and {len(lines) - 40} more")


def _prepare(args: argparse.Namespace, executor: Executor) -> FactorialRun:
    """Read and check everything, then freeze the plan and the cases."""
    import asyncio

    from evalharness.arms import launch_order, load_arms_file
    from evalharness.cli.announcing import refuse_without_gate
    from evalharness.factorial.loop import FactorialRun, with_endpoint_names
    from evalharness.factorial.open_files import require_open_files
    from evalharness.factorial.planning import (
        PLAN_NAME,
        build_plan,
        freeze,
        launch_shards,
        replays_of,
        speed_repeats_of,
    )
    from evalharness.manifest import freeze_into, load_cases, load_manifest

    file = load_arms_file(args.arms)
    manifest = load_manifest(args.manifest)
    cases = load_cases(manifest)
    file = asyncio.run(with_endpoint_names(file, trust_env=args.trust_env))
    file, facts = executor.digests(file)
    asked, settings = _asked(args, file)
    require_open_files(max(asked.concurrency))
    launches = launch_order(
        [arm.name for arm in file.arms],
        aa=file.aa,
        order=file.order,
        seed=args.seed,
        replays=replays_of(file),
        shards=launch_shards(manifest, asked.shards, asked.concurrency),
        speed_repeats=speed_repeats_of(file),
    )
    plan = build_plan(file, manifest, launches, asked)
    if not (args.out / PLAN_NAME).exists():  # a run that was started may be continued
        refuse_without_gate(file.plan, manifest)
    freeze(args.out, plan)
    freeze_into(args.out, manifest, cases)
    return FactorialRun(
        folder=args.out,
        file=file,
        facts=facts,
        manifest=manifest,
        cases=cases,
        launches=launches,
        concurrency=asked.concurrency,
        seed=args.seed,
        settings=settings,
        max_launches=args.max_launches,
        shards=asked.shards,
    )


def _asked(args: argparse.Namespace, file: ArmsFile) -> tuple[Asked, CellSettings]:
    """Return what the command line decides: part of the plan, and the bounds of a request."""
    from dataclasses import asdict

    from evalharness.factorial.cell_run import CellSettings
    from evalharness.factorial.planning import Asked, default_concurrency

    settings = CellSettings(
        request_timeout_s=args.request_timeout,
        max_body_bytes=args.max_body_mib << 20,
        trust_env=args.trust_env,
    )
    concurrency = args.concurrency or default_concurrency(file)
    return Asked(concurrency, args.seed, asdict(settings), args.shards), settings


def _announce(prepared: FactorialRun) -> None:
    """Say what the run can show before anything is asked."""
    from evalharness.cli.announcing import announcement
    from evalharness.factorial.planning import DEFAULT_ALPHA

    plan = prepared.file.plan
    alpha = float((plan or {}).get("alpha", DEFAULT_ALPHA))
    for line in announcement(plan, prepared.manifest, prepared.cases, alpha=alpha):
        _say(line)


async def _drive(prepared: FactorialRun, executor: Executor, where: str) -> Any:
    from evalharness.factorial.loop import run_factorial
    from evalharness.progress import open_display, open_lines

    # Several launches at once make lines; `evalharness watch RUN` shows them as a table.
    opened = (
        open_lines(sys.stdout) if where == "ray" else open_display(_wanted(prepared), sys.stdout)
    )
    with opened as display:
        return await run_factorial(prepared, display, executor)


def _wanted(prepared: FactorialRun) -> Sequence[Sequence[PlannedCell]]:
    from evalharness.factorial.cells import complete_cells
    from evalharness.factorial.executor import wanted_cells

    done = complete_cells(prepared.folder).keys()
    launches = [wanted_cells(prepared, launch, done) for launch in prepared.launches]
    wanted = [cells for cells in launches if cells]
    return wanted[: prepared.max_launches] if prepared.max_launches else wanted


def _report(run_dir: Path) -> int:
    """Score what is complete, write the report, print the table, close with SHA256SUMS.

    Raises StoreError where scores are there that the responses do not give.
    """
    from evalharness.errors import EXIT_INCOMPLETE, EXIT_OK, StoreError
    from evalharness.factorial.cells import complete_cells
    from evalharness.factorial.closing import has_unlisted_scores
    from evalharness.manifest import frozen_manifest
    from evalharness.scoring import all_versions, score_with
    from evalharness.store import write_sums

    faults = 0
    if complete_cells(run_dir):
        # every version: the report shows where another reading disagrees, and by which rule
        versions = all_versions(frozen_manifest(run_dir).entries)
        summary = score_with(run_dir, versions, recheck=has_unlisted_scores(run_dir))
        if summary.differing:
            raise StoreError(
                "stored scores are not what the stored responses give:\n  "
                + "\n  ".join(summary.differing[:20])
                + "\ndelete these files and run the same command again: it scores them anew"
            )
        faults = len(summary.faults)
        for fault in summary.faults:
            _say(str(fault))
        write_sums(run_dir)
        _print_report(run_dir)
    write_sums(run_dir)
    return EXIT_INCOMPLETE if faults else EXIT_OK


def _print_report(run_dir: Path) -> None:
    from evalharness.noninferiority import Asked
    from evalharness.report import FORMATS, report_document, write_document
    from evalharness.report.terminal import print_verdicts

    document = report_document([run_dir], Asked())
    paths = write_document(document, run_dir / "report", FORMATS)
    print_verdicts(document, paths, sys.stdout)


def _say(text: str) -> None:
    from evalharness.text import printable

    sys.stdout.write(f"{printable(text)}\n")
    sys.stdout.flush()
