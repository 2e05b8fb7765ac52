"""One stored cell as values, and cells whose cases were dealt out to shards, joined again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evalharness.stored_rows import CaseNll, CaseScore, State
from evalharness.types import WHOLE, CellKey


@dataclass(frozen=True, slots=True)
class StoredCell:
    """One cell as it lies on disk. `scores` and `nll` are empty unless the state is complete.

    `parts` are the shards of a cell that was joined from several; its rows are theirs, and its
    record, launch and file are those of the first.
    """

    key: CellKey
    launch: int
    state: State
    reason: str
    record: Mapping[str, Any]
    responses: Path
    scorer: str
    scores: Mapping[str, CaseScore]
    nll: Mapping[str, CaseNll]
    parts: tuple[StoredCell, ...] = ()

    @property
    def case_ids(self) -> frozenset[str]:
        """Ids this cell has a row for."""
        return frozenset(self.scores) | frozenset(self.nll)

    def part_with(self, case_id: str) -> StoredCell:
        """Return the shard that asked the case; the cell itself where it is whole."""
        return next((part for part in self.parts if case_id in part.case_ids), self)


def join_shards(cells: Mapping[CellKey, StoredCell]) -> dict[CellKey, StoredCell]:
    """Join the shards of each cell; one that is absent or not complete makes it incomplete."""
    groups: dict[CellKey, dict[int, StoredCell]] = {}
    for key, cell in cells.items():
        if key.shard.of > 1:
            groups.setdefault(replace(key, shard=WHOLE), {})[key.shard.number] = cell
    return {key: _join(key, parts) for key, parts in groups.items()}


def _join(key: CellKey, parts: Mapping[int, StoredCell]) -> StoredCell:
    first = next(iter(parts.values()))
    of = first.key.shard.of
    lacking = [
        f"shard {number} of {of}: {parts[number].reason if number in parts else 'never complete'}"
        for number in range(1, of + 1)
        if number not in parts or parts[number].state != "complete"
    ]
    return replace(
        first,
        key=key,
        state="incomplete" if lacking else "complete",
        reason="; ".join(lacking),
        scores={i: score for part in parts.values() for i, score in part.scores.items()},
        nll={i: row for part in parts.values() for i, row in part.nll.items()},
        parts=tuple(parts[number] for number in sorted(parts)),
    )
