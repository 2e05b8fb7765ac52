#!/usr/bin/env python3
"""Write fixed continuations for the tiny model's tokenizer as NLL rows.

  python tools/tiny_qwen4exp/nll_rows.py --out DIR

DIR/tiny_qwen4exp/short.jsonl: 64 cases of 64 prompt and 64 scored tokens (a verdict on the mean
needs 60 cases).
DIR/tiny_qwen4exp/long.jsonl: 16 cases of 2,400 prompt and 32 scored tokens, so that sparse
attention has more blocks (600) than it may select (512).
DIR/tiny_qwen4exp/shared.jsonl: 64 cases of 2,464 prompt and 32 scored tokens whose first 2,400 are
the same: whole blocks of a prefix cache, with the recurrent state at their end.
The text is the package's own; the tokenizer is the committed one: the same bytes every time,
whatever the weights are.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
TEXT = HERE.parents[1] / "evalharness" / "data_files" / "nll_long_text.txt"
# name -> (prompt tokens, scored tokens, cases)
SHAPES = {"short": (64, 64, 64), "long": (2400, 32, 16)}
SHARED = 2400  # common tokens before the windows of SHARED_SHAPE
SHARED_SHAPE = (64, 32, 64)


def rows(ids: list[int], *, prompt: int, scored: int, cases: int) -> list[dict[str, Any]]:
    """Cut `cases` windows, evenly spaced, of prompt + scored tokens."""
    width = prompt + scored
    if len(ids) < width + cases:
        raise SystemExit(f"{TEXT}: {len(ids)} tokens, need {width + cases}")
    step = (len(ids) - width) // (cases - 1)
    return [
        {
            "id": f"{index:03d}",
            "prompt_token_ids": ids[start : start + prompt],
            "continuation_token_ids": ids[start + prompt : start + width],
            # Windows overlap where the text is short: neighbours are no independent samples.
            "cluster_id": f"window-{start // width:03d}",
        }
        for index, start in enumerate(range(0, step * cases, step))
    ]


def shared_rows(ids: list[int]) -> list[dict[str, Any]]:
    """Put the text's first SHARED tokens before windows of the rest."""
    prompt, scored, cases = SHARED_SHAPE
    windows = rows(ids[SHARED:], prompt=prompt, scored=scored, cases=cases)
    for row in windows:
        row["prompt_token_ids"] = [*ids[:SHARED], *row["prompt_token_ids"]]
    return windows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
    ids = tokenizer.encode(TEXT.read_text(encoding="utf-8")).ids
    folder = args.out / "tiny_qwen4exp"
    folder.mkdir(parents=True, exist_ok=True)
    made = {
        name: rows(ids, prompt=prompt, scored=scored, cases=cases)
        for name, (prompt, scored, cases) in SHAPES.items()
    }
    for name, found in {**made, "shared": shared_rows(ids)}.items():
        lines = [json.dumps(row) for row in found]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{folder / name}.jsonl: {len(lines)} cases of {len(ids)} tokens")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
