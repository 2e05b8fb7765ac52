"""Cut a document's token ids into cases: a context, then the continuation that is scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from evalharness.errors import ManifestError


def windows(
    document: Sequence[int], *, name: str, context: int, continuation: int, stride: int
) -> Iterator[dict[str, Any]]:
    """Yield rows (see cases.py) of `context` + `continuation` tokens every `stride` tokens.

    Windows that share tokens belong to one cluster, and so do all of one document: their
    deltas are not independent. A remainder too short for a whole window is left out.
    Raises ManifestError where a size is below 1 or the document gives no window.
    """
    if min(context, continuation, stride) < 1:
        raise ManifestError(
            f"{name}: context {context}, continuation {continuation}, stride {stride}; "
            "expected each to be 1 or more"
        )
    size = context + continuation
    if len(document) < size:
        raise ManifestError(
            f"{name}: {len(document)} tokens, expected at least context + continuation = {size}; "
            "take a longer text or a smaller window"
        )
    for number, start in enumerate(range(0, len(document) - size + 1, stride)):
        middle = start + context
        yield {
            "id": f"{name}-{number:04d}",
            "cluster_id": name if stride < size else f"{name}-{number:04d}",
            "prompt_token_ids": list(document[start:middle]),
            "continuation_token_ids": list(document[middle : start + size]),
            "origin": {"kind": "text", "document": name, "start": start},
        }
