"""How many processes, each with its own GPU where there are GPUs, serve one arm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

# vLLM's sizes whose product is the number of ranks of one server.
SIZES = {
    "--tensor-parallel-size": "tp",
    "-tp": "tp",
    "--pipeline-parallel-size": "pp",
    "-pp": "pp",
    "--data-parallel-size": "dp",
    "-dp": "dp",
}
MAX_DIGITS = 6


def processes_of(argv: Sequence[str]) -> int:
    """Return the product of the parallel sizes in a server's arguments; the last of each counts."""
    return math.prod(dict(_sizes(argv)).values())


def _sizes(argv: Sequence[str]) -> Iterator[tuple[str, int]]:
    for index, argument in enumerate(argv):
        name, equals, value = argument.partition("=")
        value = value if equals else next(iter(argv[index + 1 :]), "")
        size = SIZES.get(name.replace("_", "-"))  # vLLM takes either
        if size and value.isdecimal() and len(value) <= MAX_DIGITS:
            yield size, int(value)
