"""The training rows as tokens: made and tokenised in many processes, kept in flat arrays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.demo_model.data import mixture

MAX_TOKENS = 1280
TOKEN = np.uint16  # the tokenizer has 49,152 entries


@dataclass(frozen=True, slots=True)
class Rows:
    """Tokenised rows end to end: two bytes a token, so that a million rows stay in memory.

    Row i is flat[ends[i] - lengths[i] : ends[i]]; its first prompts[i] tokens are the prompt.
    """

    flat: npt.NDArray[np.uint16]
    lengths: npt.NDArray[np.int32]
    prompts: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, tokens: list[list[int]], prompts: list[int]) -> Rows:
        """Pack lists of ids. Raises OverflowError where an id needs more than two bytes."""
        lengths = np.array([len(ids) for ids in tokens], dtype=np.int32)
        every = [token for ids in tokens for token in ids]
        if every and max(every) > np.iinfo(TOKEN).max:
            raise OverflowError(f"token id {max(every)} needs more than two bytes; widen TOKEN")
        ends = np.cumsum(lengths, dtype=np.int64)
        return cls(np.array(every, dtype=TOKEN), lengths, np.array(prompts, dtype=np.int32), ends)

    @classmethod
    def joined(cls, parts: list[Rows]) -> Rows:
        """Return the parts' rows in order."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(
            np.concatenate([part.flat for part in parts]),
            lengths,
            np.concatenate([part.prompts for part in parts]),
            np.cumsum(lengths, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def tokens(self, index: int) -> npt.NDArray[np.uint16]:
        """Return row `index`'s token ids [length]."""
        end = int(self.ends[index])
        return self.flat[end - int(self.lengths[index]) : end]


@lru_cache(maxsize=1)
def load_tokenizer(path: str, template: str) -> Any:
    """Return the base's tokenizer with the served template; loaded once a process."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.chat_template = Path(template).read_text(encoding="utf-8")
    return tokenizer


def tokenize_chunk(job: tuple[str, str, int, int, int]) -> tuple[Rows, str]:
    """Make and tokenise rows [start, stop) of a seed; also return the rows' digest."""
    path, template, seed, start, stop = job
    tokenizer = load_tokenizer(path, template)
    digest = hashlib.sha256()
    texts: list[str] = []
    answers: list[str] = []
    for index in range(start, stop):
        row = mixture.row(Random(f"{seed}:{index}"))
        digest.update(mixture.line(row))
        texts.append(
            tokenizer.apply_chat_template(
                row["messages"][:-1],
                tools=row.get("tools"),
                add_generation_prompt=True,
                tokenize=False,
            )
        )
        answers.append(row["messages"][-1]["content"] + "<|im_end|>")
    prompts = tokenizer(texts, add_special_tokens=False)["input_ids"]
    replies = tokenizer(answers, add_special_tokens=False)["input_ids"]
    pairs = zip(prompts, replies, strict=True)
    kept = [(prompt, reply) for prompt, reply in pairs if len(prompt) + len(reply) <= MAX_TOKENS]
    rows = Rows.of([prompt + reply for prompt, reply in kept], [len(prompt) for prompt, _ in kept])
    return rows, digest.hexdigest()


def make_tokens(path: Path, template: Path, seed: int, count: int) -> tuple[Rows, str]:
    """Return `count` tokenised rows (less the too long ones) and the data's digest."""
    jobs = [
        (str(path), str(template), seed, start, min(start + mixture.CHUNK, count))
        for start in range(0, count, mixture.CHUNK)
    ]
    parts: list[Rows] = []
    digests: list[str] = []
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    with ProcessPoolExecutor(max_workers=max(1, (os.cpu_count() or 2) - 1)) as pool:
        for rows, part in pool.map(tokenize_chunk, jobs):
            parts.append(rows)
            digests.append(part)
    return Rows.joined(parts), mixture.digest(digests)


def batches(rows: Rows, tokens_per_batch: int, rng: Random) -> Iterator[list[int]]:
    """Yield batches of rows of like length, in random order, about `tokens_per_batch` each."""
    lengths: list[int] = rows.lengths.tolist()
    order = sorted(range(len(lengths)), key=lambda i: lengths[i] + rng.random() * 24)
    found: list[list[int]] = []
    current: list[int] = []
    longest = 0
    for index in order:
        longest = max(longest, lengths[index])
        if current and longest * (len(current) + 1) > tokens_per_batch:
            found.append(current)
            current, longest = [], lengths[index]
        current.append(index)
    found.append(current)
    rng.shuffle(found)
    yield from found
