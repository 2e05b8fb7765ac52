"""`evalharness manifest build|verify|show`: the frozen list of a run's cases."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from evalharness.cli.ranges import whole

EXAMPLE = (
    "examples:\n"
    "  evalharness manifest build manifests/recipes/api80.json --out manifests/api80.json\n"
    "  evalharness manifest verify manifests/*.json\n"
    "  evalharness manifest show manifests/api80.json --case parallel_6"
)


def add_parser(subparsers: Any) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "manifest",
        help="build, verify or show a manifest",
        description="A manifest lists cases by id and digest, with sampling and data revision; "
        "it holds no data. A recipe says how cases are chosen; the same data gives the same "
        "manifest, byte for byte.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="make a manifest of a recipe")
    build.add_argument("recipe", type=Path, metavar="RECIPE")
    build.add_argument("--out", type=Path, required=True, metavar="FILE")
    build.add_argument("--model", type=Path, metavar="DIR", help="report cases that cannot fit")
    build.add_argument(
        "--max-model-len", type=whole(1), metavar="TOKENS", help="that model's context"
    )
    verify = actions.add_parser("verify", help="name every case that is missing or changed")
    verify.add_argument("files", type=Path, nargs="+", metavar="FILE")
    show = actions.add_parser("show", help="what a manifest asks")
    show.add_argument("file", type=Path, metavar="FILE")
    show.add_argument("--case", metavar="ID", help="print one case and its first request")


def run(args: argparse.Namespace) -> int:
    """Do the action. Raises ManifestError (exit 2); `verify` returns 2 for changed cases."""
    if args.action == "build":
        return _build(args)
    if args.action == "verify":
        return _verify(args.files)
    return _show(args.file, args.case)


def _build(args: argparse.Namespace) -> int:
    from evalharness.errors import ManifestError
    from evalharness.manifest import load_cases
    from evalharness.manifest_build import build_manifest, oversized, token_counter
    from evalharness.store.output import output_file

    if (args.model is None) != (args.max_model_len is None):
        raise ManifestError("--model and --max-model-len belong together; give both or neither")
    with output_file(args.out, inputs=(args.recipe,)) as out:
        manifest = build_manifest(args.recipe)
        out.write(manifest.text.encode("utf-8"))
    count = sum(len(entry.cases) for entry in manifest.entries.values())
    _print(f"{args.out}: {count} cases, sha256 {manifest.sha256}")
    if args.model is not None:
        found = list(
            oversized(
                manifest,
                load_cases(manifest),
                count_tokens=token_counter(args.model),
                context_tokens=args.max_model_len,
            )
        )
        for one in found:
            _print(str(one))
        _print(f"{len(found)} of {count} cases cannot fit {args.max_model_len} tokens")
    return 0


def _verify(files: list[Path]) -> int:
    from evalharness.errors import EXIT_OK, EXIT_USAGE
    from evalharness.manifest import entry_cases, load_manifest

    failed = False
    for path in files:
        manifest = load_manifest(path)
        for entry in manifest.entries.values():
            cases, problems = entry_cases(entry)
            for problem in problems:
                _print(f"{path}: {problem}")
            _print(f"{path}: {entry.name}: {len(cases)} of {len(entry.cases)} cases verified")
            failed = failed or bool(problems)
    return EXIT_USAGE if failed else EXIT_OK


def _show(path: Path, case_id: str | None) -> int:
    from evalharness.manifest import load_manifest

    manifest = load_manifest(path)
    if case_id is not None:
        return _show_case(path, case_id)
    _print(f"{manifest.name}  sha256 {manifest.sha256}")
    for entry in manifest.entries.values():
        sampling = entry.sampling
        _print(
            f"  {entry.name}: {len(entry.cases)} cases of {entry.source.label}, suite "
            f"{entry.suite}, modes {', '.join(entry.modes)}, scorer {entry.scorer}, template "
            f"{entry.template}, temperature {sampling.temperature}, top_p {sampling.top_p}, "
            f"max_tokens {sampling.max_tokens}, extra {sampling.extra}"
        )
    return 0


def _show_case(path: Path, case_id: str) -> int:
    import json

    from evalharness.errors import ManifestError
    from evalharness.manifest import entry_cases, load_manifest
    from evalharness.registry import suite_named
    from evalharness.types import RequestContext

    for entry in load_manifest(path).entries.values():
        if case_id not in entry.case_ids:
            continue
        cases, problems = entry_cases(entry)
        case = next((case for case in cases if case.case_id == case_id), None)
        if case is None:
            raise ManifestError(next(str(one) for one in problems if one.case_id == case_id))
        context = RequestContext("model", entry.modes[0], entry.sampling, 0, 0, entry.template)
        request = suite_named(entry.suite).request(case, context)
        shown = {
            "entry": entry.name,
            "case_id": case_id,
            "sha256": case.digest,
            "expected": json.loads(case.expected),
            "endpoint": request.endpoint,
            "body": json.loads(request.body_json),
        }
        _print(json.dumps(shown, indent=1))
        return 0
    raise ManifestError(f"{path}: no case {case_id!r}; see its `cases`")


def _print(line: str) -> None:
    from evalharness.text import printable

    sys.stdout.write(printable(line) + "\n")
