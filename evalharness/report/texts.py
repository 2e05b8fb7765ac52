"""Where the texts of two arms part: the position of the first difference, case by case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from evalharness.chat import Reply, read_reply
from evalharness.report.answers import answer_text, responses
from evalharness.runs import StoredCell

Text = tuple[str, Sequence[Any]]  # unit ("token" or "character") and the units themselves


def texts_of(cell: StoredCell) -> Iterator[tuple[str, Text]]:
    """Yield (case id, text) of every reply that was seen whole; token ids where they are kept."""
    for response in responses(cell):
        if isinstance(read_reply(response), Reply):
            if response.token_ids is not None:
                yield response.case_id, ("token", response.token_ids)
            else:
                yield response.case_id, ("character", answer_text(response))


def first_difference(control: Text, arm: Text) -> int | None:
    """Return the 0-based position at which the texts part, or None if they are equal.

    A text that is a beginning of the other parts at its own length.
    """
    left, right = control[1], arm[1]
    if left == right:
        return None
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return min(len(left), len(right))


def divergence(control: Mapping[str, Text], arm: Iterable[tuple[str, Text]]) -> dict[str, Any]:
    """Compare one cell's texts with the control's, case by case.

    Returns compared and identical counts, and .1/.5/.9 quantiles of the first difference's
    position over the differing cases, in `unit`s from 0; `at_first` counts position 0.
    """
    positions: list[int] = []
    units: set[str] = set()
    compared = 0
    for case_id, text in arm:
        other = control.get(case_id)
        if other is None or other[0] != text[0]:
            continue
        compared += 1
        units.add(text[0])
        place = first_difference(other, text)
        if place is not None:
            positions.append(place)
    quantiles = np.quantile(positions, [0.1, 0.5, 0.9]) if positions else ()
    return {
        "compared": compared,
        "identical": compared - len(positions),
        "unit": "/".join(sorted(units)) or None,
        "at_first": sum(place == 0 for place in positions),
        "quantiles": [float(value) for value in quantiles],
    }
