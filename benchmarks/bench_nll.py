"""Cost of forced replay against free decoding of as many tokens, and of ten million deltas.

    python benchmarks/bench_nll.py --model .demo/model [--pairs 3] [--out docs/results/nll.json]
    python benchmarks/bench_nll.py --deltas-only

Replay: 80 cases x 46 tokens at C16, alternating with the same prompts decoded freely (greedy,
end of text ignored, the same streaming and log-probabilities). Reports each pair's ratio and the
median. Deltas: writing from 5,000 cases of 2,000 tokens a side, then the summary; peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

CASES, TOKENS, CONCURRENCY = 80, 46, 16


def requests() -> dict[str, list[Any]]:
    """Return the same prompts as forced and as free requests, alike in all else."""
    from evalharness.nll import SUITE
    from evalharness.types import Request, canonical_json
    from tests.e2e.nll_arms import context

    rng = np.random.default_rng(1)
    forced, free = [], []
    for number in range(CASES):
        row = {
            "prompt_token_ids": rng.integers(20, 40_000, 64).tolist(),
            "continuation_token_ids": rng.integers(20, 40_000, TOKENS).tolist(),
        }
        case = SUITE.to_case(f"b{number}", row)
        one = SUITE.request(case, context("decode", max_tokens=TOKENS))
        body = json.loads(one.body_json)
        del body["vllm_xargs"]
        forced.append(one)
        free.append(Request(one.case_id, 0, one.endpoint, canonical_json(body), stream=True))
    return {"forced": forced, "free": free}


def require_whole(kind: str, answers: list[Any]) -> None:
    """Stop where an answer is not whole: its time would not be that of as many tokens."""
    for one in answers:
        found = len(one.token_ids or ())
        if one.status != "ok" or found != TOKENS:
            raise SystemExit(
                f"{kind} {one.case_id}: {one.status} {one.http_code} {one.error}, {found} of "
                f"{TOKENS} tokens, finish {one.finish_reason}; nothing was measured"
            )


def bench_replay(model: Path, pairs: int) -> dict[str, Any]:
    """Return seconds of free and forced decoding, alternating on one server."""
    from evalharness.nll.ask import ask
    from tests.e2e.nll_arms import Bench, endpoint
    from tests.e2e.vllm_server import Servers

    asked = requests()
    seconds: dict[str, list[float]] = {"free": [], "forced": []}
    with tempfile.TemporaryDirectory() as folder:
        servers = Servers(Path(folder))
        try:
            server = endpoint(Bench(servers, model, Path(folder)).server("control"))
            ask(server, asked["free"][:CONCURRENCY], concurrency=CONCURRENCY)  # warm-up
            for number in range(pairs):
                # Alternating order: a drift of the machine falls on both.
                for kind in ("free", "forced") if number % 2 == 0 else ("forced", "free"):
                    start_s = time.perf_counter()
                    answers = ask(server, asked[kind], concurrency=CONCURRENCY)
                    seconds[kind].append(round(time.perf_counter() - start_s, 3))
                    require_whole(kind, answers)
        finally:
            servers.close()
    ratios = [b / a for a, b in zip(seconds["free"], seconds["forced"], strict=True)]
    return {"seconds": seconds, "ratios": ratios, "median_ratio": statistics.median(ratios)}


def bench_deltas(cases: int = 5_000, tokens: int = 2_000) -> dict[str, Any]:
    """Return seconds and peak memory of writing and summarising cases x tokens deltas."""
    from evalharness.nll.deltas import summarise, write_deltas

    with tempfile.TemporaryDirectory() as folder:
        sides = [Path(folder) / name for name in ("control", "candidate")]
        for number, side in enumerate(sides):
            rng = np.random.default_rng(number)
            with side.open("w", encoding="utf-8") as out:
                for case in range(cases):
                    logprobs = np.round(rng.normal(-2, 1, tokens), 6).tolist()
                    row = {
                        "case_id": f"k{case}",
                        "replicate": 0,
                        "mode": "decode",
                        "outcome": "observed",
                        "reason": "valid",
                        "token_ids": [17] * tokens,
                        "logprobs": logprobs,
                        "pure": [True] * tokens,
                    }
                    out.write(json.dumps(row) + "\n")
        start_s = time.perf_counter()
        written, _ = write_deltas(sides[0], sides[1], Path(folder) / "deltas")
        write_s = time.perf_counter() - start_s
        start_s = time.perf_counter()
        summarise(Path(folder) / "deltas", thresholds=(0.1, 0.5))
        summarise_s = time.perf_counter() - start_s
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {
        "rows": written,
        "write_s": round(write_s, 2),
        "summarise_s": round(summarise_s, 2),
        "peak_mib": peak_mib,
    }


def main() -> int:
    """Run both and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ROOT / ".demo" / "model")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--deltas-only", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result: dict[str, Any] = {"deltas": bench_deltas()}
    if not args.deltas_only:
        result["replay"] = bench_replay(args.model, args.pairs)
    text = json.dumps(result, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
