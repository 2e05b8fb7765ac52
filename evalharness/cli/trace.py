"""`evalharness trace`: where the time of a decode step goes, by kernel family."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

EXAMPLE = (
    "examples:\n"
    "  evalharness trace runs/mine --arm moe                 starts the arm's server, profiles it\n"
    "  evalharness trace runs/mine --arm moe --concurrency 4 --outputs 40\n"
    "  evalharness trace runs/mine --arm moe --base-url http://127.0.0.1:8000 "
    "--trace-dir /tmp/traces\n"
    "  evalharness trace --file rank0.pt.trace.json.gz --out traces/rank0   offline\n"
    "\n"
    "exit codes: 0 attributed; 2 a file or argument is wrong; 3 the server failed;\n"
    "12 refused: prefill in the trace, another concurrency, or nothing that shows pure decode"
)


def add_parser(subparsers: Any) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "trace",
        help="profile an arm in pure decode and sum its kernels by family",
        description="Start (or use) the server of one arm of a run, drive C streams, and ask for "
        "a profile once every stream has made a set number of outputs in pure decode. Writes "
        "RUN/trace/<arm>/<number>/trace.json and trace.md: kernel time by family and by name, "
        "unknown kernels by name, envelope, busy time, overlap and gaps. A trace with prefill in "
        "it is refused.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN", help="run directory")
    parser.add_argument("--arm", metavar="A", help="arm of the run (control, aa, or a name)")
    parser.add_argument("--concurrency", type=_positive, default=16, metavar="C", help="(16)")
    parser.add_argument(
        "--confirm", type=_positive, default=32, metavar="N",
        help="outputs in a row, of every stream, in pure decode before the profile (32)",
    )  # fmt: skip
    parser.add_argument(
        "--outputs", type=_positive, default=20, metavar="N", help="outputs profiled (20)"
    )
    parser.add_argument(
        "--prompt-words", type=_positive, default=128, metavar="N", help="words a prompt (128)"
    )
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="(900)")
    parser.add_argument("--families", type=Path, metavar="FILE", help="another list of families")
    running = parser.add_argument_group("a server that runs already")
    running.add_argument("--base-url", metavar="URL", help="it, started with --profiler-config")
    running.add_argument("--api-key-env", metavar="VAR", help="variable that holds its key")
    running.add_argument("--trace-dir", type=Path, metavar="DIR", help="where it writes traces")
    offline = parser.add_argument_group("trace files that are there already")
    offline.add_argument("--file", type=Path, action="append", metavar="FILE", help="repeatable")
    offline.add_argument("--out", type=Path, metavar="DIR", help="where trace.json goes")
    offline.add_argument(
        "--unproven", action="store_true", help="accept a trace without annotated steps"
    )


def _positive(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Trace an arm, or read files. Raises HarnessError with the exit codes of EXAMPLE."""
    from evalharness.errors import HarnessError

    if args.file:
        if args.run or args.out is None:
            raise HarnessError("--file takes no RUN and needs --out DIR, where trace.json goes")
        return _files(args)
    if args.run is None or args.arm is None:
        raise HarnessError("give RUN and --arm, or --file and --out; see `evalharness trace -h`")
    if bool(args.base_url) != bool(args.trace_dir):
        raise HarnessError(
            "--base-url and --trace-dir go together: a server that runs already, and the folder "
            "(its torch_profiler_dir, readable here) in which it writes its traces"
        )
    return _arm(args)


def _files(args: argparse.Namespace) -> int:
    from evalharness.trace.command import read_files
    from evalharness.trace.families import DEFAULT

    document = read_files(
        args.file, args.out, families=args.families or DEFAULT, unproven=args.unproven
    )
    return _print(document, args.out)


def _arm(args: argparse.Namespace) -> int:
    from evalharness.store import run_lock
    from evalharness.trace.command import trace_run
    from evalharness.trace.families import DEFAULT

    running = None
    if args.base_url:
        running = {
            "base_url": args.base_url,
            "api_key_env": args.api_key_env,
            "trace_dir": args.trace_dir,
        }
    asked = {
        "concurrency": args.concurrency,
        "confirm": args.confirm,
        "outputs": args.outputs,
        "prompt_words": args.prompt_words,
        "timeout_s": args.timeout,
    }
    if not (args.run / "plan.json").is_file():
        from evalharness.errors import PlanError

        raise PlanError(
            f"{args.run / 'plan.json'}: not found; give the RUN directory that "
            "`evalharness factorial --out RUN` wrote"
        )
    # A factorial in progress would lose its server: leftovers of a run are killed by its mark.
    with run_lock(args.run):
        document, folder = trace_run(
            args.run,
            args.arm,
            asked=asked,
            families=args.families or DEFAULT,
            running=running,
            say=_say,
        )
    return _print(document, folder)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _print(document: dict[str, Any], folder: Path) -> int:
    from evalharness.trace.document import markdown

    sys.stdout.write(f"{markdown(document)}\n{folder / 'trace.json'}\n")
    return 0
