"""`evalharness`: one module per subcommand, loaded by name.

A subcommand module has `add_parser(subparsers)` and `run(args) -> int`, and imports what is
heavy inside `run`: `evalharness rescore` must work where aiohttp was never imported.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from evalharness import __version__
from evalharness.errors import EXIT_INCOMPLETE, EXIT_INTERNAL, EXIT_USAGE, HarnessError
from evalharness.text import printable

COMMANDS = (
    "factorial",
    "noninferiority",
    "rescore",
    "score",
    "plan",
    "manifest",
    "data",
    "arms",
    "nll",
    "trace",
    "watch",
    "doctor",
)
WRONG_PATH = (
    errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG,
)  # fmt: skip
DESCRIPTION = (
    "Did this vLLM flag hurt the model: alone, with the others, and under load?\n"
    "Serves every combination of the flags, asks each the same cases, and answers with paired\n"
    "statistics: admitted, harm shown, or undecided."
)
EXAMPLE = (
    "example:\n"
    "  evalharness factorial --arms manifests/arms/demo.yaml --manifest manifests/demo.json "
    "--out runs/demo\n"
    "  evalharness noninferiority runs/demo"
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with every subcommand in it."""
    parser = argparse.ArgumentParser(
        prog="evalharness",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"evalharness {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"evalharness.cli.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors of the user's print no traceback."""
    args = build_parser().parse_args(argv)
    command = importlib.import_module(f"evalharness.cli.{args.command}")
    try:
        return int(command.run(args))
    except HarnessError as error:
        print_error(str(error))
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing to tell it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INTERNAL
    except OSError as error:
        # What no module foresaw of disk, permissions and limits; all else keeps its traceback.
        code = disk_exit_code(error)
        if code is None:
            raise
        remedy = "give a path that is there and of the right kind"
        if error.errno not in WRONG_PATH:
            remedy = "free space or give a writable place, and run the same command again"
        print_error(f"{error.filename or args.command}: {error.strerror}; {remedy}")
        return code
    except KeyboardInterrupt:
        print_error("stopped by Ctrl-C")
        return 128 + signal.SIGINT


def disk_exit_code(error: OSError) -> int | None:
    """Return the exit code of an error of the disk, None where the error is another one."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EXIT_INCOMPLETE
    known = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG, errno.EMFILE)
    if error.errno in known:
        return EXIT_USAGE
    # Without a file's name it is no path of the user's.
    return EXIT_USAGE if error.errno in WRONG_PATH and error.filename is not None else None


def print_error(message: str) -> None:
    """Write one error to stderr, control characters made visible."""
    sys.stderr.write(f"evalharness: {printable(message)}\n")


def entry() -> None:
    """Entry point of the `evalharness` script."""
    sys.exit(main())
