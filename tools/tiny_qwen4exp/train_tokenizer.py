#!/usr/bin/env python3
"""Train the byte-level BPE that make_model.py copies; run once, its output is committed.

  python tools/tiny_qwen4exp/train_tokenizer.py FILE...

Trained on text files given by name (this project's documents and sources and GSM8K's
questions were used). A byte-level BPE has a token for every byte, so any text can be
encoded; the committed file keeps digests of prompts equal from one build to the next.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).resolve().parent
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def train(files: list[str], *, vocab_size: int) -> Tokenizer:
    """Return a byte-level BPE tokenizer with `vocab_size` entries, the specials first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train(files, trainer)
    return tokenizer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--vocab-size", type=int, default=4096)
    args = parser.parse_args()
    train(args.files, vocab_size=args.vocab_size).save(str(HERE / "tokenizer.json"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
