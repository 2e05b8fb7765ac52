"""Options of commands whose work can be carried out on a Ray cluster."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evalharness.factorial.executor import Executor


def add_cluster_options(parser: Any) -> None:
    """Add the options that choose where the work is done."""
    parser.add_argument(
        "--executor",
        choices=("local", "ray"),
        default="local",
        help="where the work is done (local); ray needs the [ray] extra",
    )
    parser.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="with --executor ray: auto (the cluster of this machine), HOST:PORT, or local",
    )


def add_options(parser: Any) -> None:
    """Add the options that choose where launches run, and what each asks for."""
    add_cluster_options(parser)
    parser.add_argument(
        "--resources",
        action="append",
        type=resource,
        default=[],
        metavar="NAME=N",
        help="with --executor ray: what one launch asks for, such as GPU=4; repeatable (one "
        "launch a node)",
    )


def resource(text: str) -> tuple[str, float]:
    """Return (name, amount) of `GPU=4`."""
    name, _, amount = text.partition("=")
    try:
        value = float(amount)
    except ValueError:
        value = 0.0
    if not name or not 0 < value < 1e15:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=N with N above 0, as in GPU=4")
    if name == "GPU" and not value.is_integer():
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a whole number of GPUs, as in GPU=1: Ray would put launches that "
            "ask for a part of a card on one card, and each would slow the other"
        )
    return name, value


@contextlib.contextmanager
def opened_executor(args: argparse.Namespace) -> Iterator[Executor]:
    """Open the executor asked for; nothing of Ray is imported for the local one."""
    from evalharness.errors import HarnessError

    if args.executor == "local":
        from evalharness.factorial.local import LocalExecutor

        if args.ray_address or args.resources:
            raise HarnessError("--ray-address and --resources go with --executor ray")
        yield LocalExecutor()
        return
    from evalharness.cluster import open_ray_executor

    executor = open_ray_executor(args.ray_address or "auto", dict(args.resources))
    try:
        yield executor
    finally:
        executor.close()


@contextlib.contextmanager
def connected(args: argparse.Namespace) -> Iterator[bool]:
    """Connect to the cluster where one was asked for; yields whether it was."""
    from evalharness.errors import HarnessError

    if args.executor == "local":
        if args.ray_address:
            raise HarnessError("--ray-address goes with --executor ray")
        yield False
        return
    from evalharness.cluster import open_session

    session = open_session(args.ray_address or "auto")
    try:
        yield True
    finally:
        session.close()
