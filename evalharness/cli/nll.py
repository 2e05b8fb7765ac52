"""`evalharness nll capture|replay|compare`: fixed continuations against a running server."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

from evalharness.cli.ranges import number, thresholds, whole

EXAMPLE = (
    "examples:\n"
    "  evalharness nll capture --base-url http://127.0.0.1:8000 --model m --prompts p.jsonl "
    "--max-tokens 64 --out cases.jsonl\n"
    "  evalharness nll capture --base-url http://127.0.0.1:8000 --model m "
    "--manifest manifests/gsm8k16.json --entry gsm8k --out cases.jsonl\n"
    "  evalharness nll capture --base-url http://127.0.0.1:8000 --model m --text doc.txt "
    "--context 512 --continuation 64 --stride 64 --out cases.jsonl\n"
    "  evalharness nll replay --base-url http://127.0.0.1:8000 --model m --cases cases.jsonl "
    "--mode decode --concurrency 16 --out control.jsonl\n"
    "  evalharness nll compare control.jsonl candidate.jsonl --out deltas.bin"
)

# A day: longer than any answer takes, and in nanoseconds far below what 64 bits hold.
SECONDS = number(most=86_400.0, without_least=True)
SHARE = number(most=1.0, without_least=True)


def add_parser(subparsers: Any) -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "nll",
        help="capture, replay and compare fixed continuations",
        description="Capture the control's own continuations once (or cut a text into windows), "
        "then have any server score exactly those tokens: in prefill, or forced one by one "
        "during batched decode.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_capture(actions)
    _add_replay(actions)
    _add_compare(actions)


def _add_endpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base-url", required=True, metavar="URL", help="a running server")
    parser.add_argument("--model", required=True, metavar="NAME", help="the name it serves")
    parser.add_argument("--api-key-env", metavar="VAR", help="variable that holds its key")
    parser.add_argument("--timeout-s", type=SECONDS, default=600.0, metavar="S")
    parser.add_argument("--concurrency", type=whole(1), default=1, metavar="C")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON Lines")


def _add_capture(actions: Any) -> None:
    parser = actions.add_parser("capture", help="make cases: the server's own answers, or windows")
    _add_endpoint(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompts", type=Path, help='rows {"id", "messages" | "prompt"}')
    source.add_argument("--manifest", type=Path, help="a manifest: its cases, with its sampling")
    source.add_argument("--text", type=Path, help="a UTF-8 text, cut into windows")
    parser.add_argument("--entry", metavar="NAME", help="with --manifest: whose cases are asked")
    parser.add_argument("--max-tokens", type=whole(1), default=64, help="longest answer kept")
    parser.add_argument("--temperature", type=number(), default=0.0)
    parser.add_argument("--top-p", type=SHARE, default=1.0)
    parser.add_argument("--context", type=whole(1), default=512, help="tokens before each window")
    parser.add_argument("--continuation", type=whole(1), default=64, help="tokens scored in each")
    parser.add_argument("--stride", type=whole(1), default=64, help="tokens between window starts")


def _add_replay(actions: Any) -> None:
    parser = actions.add_parser("replay", help="have a server score the cases' tokens")
    _add_endpoint(parser)
    parser.add_argument("--cases", type=Path, required=True, metavar="FILE")
    parser.add_argument("--mode", choices=("prefill", "decode"), default="decode")
    parser.add_argument(
        "--max-tokens", type=whole(1), default=1 << 20, help="score no more of each"
    )
    parser.add_argument("--top-logprobs", type=whole(0), default=0, metavar="K", help="for the KL")


def _add_compare(actions: Any) -> None:
    parser = actions.add_parser("compare", help="deltas of two replays: candidate minus control")
    parser.add_argument("control", type=Path)
    parser.add_argument("candidate", type=Path)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="per-token deltas")
    parser.add_argument(
        "--tail-nats", type=thresholds, default="0.1,0.5,1.0", help="thresholds of |delta|"
    )
    parser.add_argument("--pure-only", action="store_true", help="tokens of pure-C decode steps")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the bootstrap")


def run(args: argparse.Namespace) -> int:
    """Do the action. Raises ManifestError, StoreError (2), ServerError (3)."""
    from evalharness.store.output import output_file

    if args.action == "compare":
        return _compare(args)
    # Opened before anything is asked: answers that cannot be kept would be lost.
    if args.action == "capture":
        sources = (args.prompts, args.manifest, args.text)
        with output_file(args.out, inputs=[one for one in sources if one is not None]) as out:
            return _capture(args, out)
    with output_file(args.out, inputs=(args.cases,)) as out:
        return _replay(args, out)


def _compare(args: argparse.Namespace) -> int:
    from evalharness.nll.compare import compare, render

    found = compare(
        args.control,
        args.candidate,
        args.out,
        thresholds=args.tail_nats,
        pure_only=args.pure_only,
        seed=args.seed,
    )
    sys.stdout.write(render(found))
    return 0


def _endpoint(args: argparse.Namespace) -> Any:
    from evalharness.errors import ManifestError
    from evalharness.nll.ask import Endpoint

    key = None
    if args.api_key_env:
        key = os.environ.get(args.api_key_env)
        if key is None:
            raise ManifestError(f"--api-key-env {args.api_key_env}: that variable is not set")
    return Endpoint(args.base_url, args.model, key, args.timeout_s)


def _capture(args: argparse.Namespace, out: BinaryIO) -> int:
    from evalharness.errors import ManifestError
    from evalharness.nll.capture import Skipped
    from evalharness.nll.replay import capture_prompts, capture_requests, capture_text
    from evalharness.types import Sampling

    endpoint = _endpoint(args)
    skipped: list[Skipped] = []
    if args.text is not None:
        sizes = {name: getattr(args, name) for name in ("context", "continuation", "stride")}
        rows = capture_text(endpoint, args.text, **sizes)
    elif args.manifest is not None:
        requests = _manifest_requests(args)
        rows, skipped = capture_requests(endpoint, requests, concurrency=args.concurrency)
    else:
        sampling = Sampling(args.temperature, args.top_p, args.max_tokens)
        rows, skipped = capture_prompts(
            endpoint, args.prompts, sampling=sampling, seed=args.seed, concurrency=args.concurrency
        )
    for one in skipped:
        sys.stderr.write(f"no case of {one.prompt_id}: {one.reason}\n")
    if not rows:
        raise ManifestError("no prompt gave a case; see the reasons above")
    _write(out, rows)
    sys.stdout.write(f"{len(rows)} cases, {len(skipped)} prompts without one -> {args.out}\n")
    return 0


def _manifest_requests(args: argparse.Namespace) -> list[Any]:
    """Requests of a manifest's entry, in its first mode and with its own sampling and seeds."""
    from evalharness.errors import ManifestError
    from evalharness.manifest import load_cases, load_manifest
    from evalharness.registry import suite_named
    from evalharness.seeds import request_seed
    from evalharness.types import RequestContext

    manifest = load_manifest(args.manifest)
    entry = manifest.entries.get(args.entry)
    if entry is None or entry.suite == "nll":
        told = ", ".join(name for name, one in manifest.entries.items() if one.suite != "nll")
        raise ManifestError(f"{args.manifest}: --entry {args.entry}, expected one of {told}")
    suite = suite_named(entry.suite)

    def context(case_id: str) -> RequestContext:
        seed = request_seed(
            args.seed, suite=entry.name, case_id=case_id, replicate=0, salt=entry.seed_salt
        )
        return RequestContext(args.model, entry.modes[0], entry.sampling, seed, 0, entry.template)

    cases = load_cases(manifest)[entry.name]
    return [suite.request(case, context(case.case_id)) for case in cases]


def _replay(args: argparse.Namespace, out: BinaryIO) -> int:
    from evalharness.nll.replay import replay_file

    rows = replay_file(
        _endpoint(args),
        args.cases,
        mode=args.mode,
        max_tokens=args.max_tokens,
        top_logprobs=args.top_logprobs,
        concurrency=args.concurrency,
        seed=args.seed,
    )
    _write(out, rows)
    lost = [row for row in rows if row["outcome"] != "observed"]
    for row in lost:
        sys.stderr.write(f"unobserved {row['case_id']}: {row['reason']}\n")
    tokens = sum(len(row["token_ids"]) for row in rows)
    pure = sum(sum(row["pure"]) for row in rows)
    sys.stdout.write(
        f"{args.mode} at C{args.concurrency}: {len(rows)} cases, {len(lost)} unobserved, "
        f"{tokens} tokens, {pure} of pure steps -> {args.out}\n"
    )
    return 0


def _write(out: BinaryIO, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        out.write((json.dumps(row, separators=(",", ":")) + "\n").encode("ascii"))
    out.flush()  # a full disk shows before the command says that it is done
