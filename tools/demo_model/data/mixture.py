"""The training mixture: chat rows from one seed, and the digest that names them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from tools.demo_model.data import problems, schemas, tasks, tools

# How each kind is asked. The first of each list is what the suites' requests say, so that the
# demo asks as the model was taught; the others keep it from hanging on one wording.
SCHEMA_ASKS: tuple[str, ...] = (
    "Write one JSON value that is valid under this JSON Schema. Answer with the JSON alone.\n\n{schema}",
    "Give a JSON instance of the following schema. Output only JSON.\n{schema}",
    "Answer with JSON that matches this schema:\n{schema}",
    "{schema}\n\nReturn one valid JSON document for the schema above and nothing else.",
)
PROBLEM_ASKS: tuple[str, ...] = (
    "Solve the following problem step by step. Write the final answer on the last line as "
    "#### followed by the number alone, for example: #### 42\n\n{question}",
    "{question}\nEnd with #### and the number.",
    "Solve step by step and finish with '#### answer'.\n\n{question}",
)

# Rows that are made, and digested, at a time.
CHUNK = 2000


def row(rng: Random) -> dict[str, Any]:
    """Return one chat row: {"messages": [...], "tools": [...] or absent}."""
    # Shares of rows. A word problem has a quarter of a tool row's tokens, and rows of like length
    # make a batch: a share of 25% is a tenth of the batches.
    kind = rng.random()
    if kind < 0.59:
        return tools.example(rng)
    if kind < 0.72:
        schema, value = schemas.document(rng)
        return {"messages": _turns(_ask(rng, SCHEMA_ASKS).replace("{schema}", schema), value)}
    if kind < 0.75:
        task, schema, value = tasks.document(rng)
        asked = _ask(rng, SCHEMA_ASKS).replace("{schema}", schema)
        return {"messages": _turns(f"{task}\n\n{asked}", value)}
    question, answer = problems.problem(rng)
    return {"messages": _turns(_ask(rng, PROBLEM_ASKS).replace("{question}", question), answer)}


def _ask(rng: Random, bank: tuple[str, ...]) -> str:
    return bank[0] if rng.random() < 0.7 else rng.choice(bank)


def _turns(user: str, assistant: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


def rows(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield `count` rows of a seed; row i depends on the seed and i alone."""
    for index in range(count):
        yield row(Random(f"{seed}:{index}"))


def line(item: dict[str, Any]) -> bytes:
    """Return a row as the digest reads it: one JSON line."""
    return json.dumps(item, ensure_ascii=True).encode() + b"\n"


def digest(chunks: Iterable[str]) -> str:
    """Return what names the data: SHA-256 over the digests of its chunks of CHUNK rows, in order."""
    return hashlib.sha256("".join(chunks).encode()).hexdigest()
