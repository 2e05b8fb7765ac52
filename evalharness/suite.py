"""What a suite is: four functions and a name. The loop, the store and the report know no more.

To add one, copy the smallest package (`gsm8k`), write its functions, add a manifest and one
line in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from evalharness.types import Case, NllRow, Request, RequestContext, Response, Score

ToCase = Callable[[str, Mapping[str, Any]], Case]
ToRequest = Callable[[Case, RequestContext], Request]
Scorer = Callable[[Case, Response], Score]
TokenScorer = Callable[[Case, Response], NllRow]
VectorScorer = Callable[[Mapping[str, Any], str], Mapping[str, Any]]


class CellAnnotator(Protocol):
    """Fills in what only a whole cell's responses tell. rows[i] belongs to responses[i]."""

    def __call__(
        self, rows: Sequence[NllRow], responses: Sequence[Response], *, concurrency: int
    ) -> list[NllRow]:
        """Return the rows in the same order."""
        ...


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite.

    kind: "verdict" suites give Scores, "nll" suites give NllRows; "speed" suites give Scores that
        say whether a response can be timed, and judge no quality.
    modes: how a case may be asked; each is a cell of its own.
    to_case: (row id, raw row of the data source) -> Case. Raises ManifestError on a bad row.
    request: (Case, RequestContext) -> Request; deterministic.
    scorers: scorer version ("official/1") -> function. Never raise on any response.
    score_vector: one row of `evalharness score`'s input and a scorer version -> output row;
        None where the suite has no vectors.
    annotate_cell: applied to all token rows of a cell before they are stored; None for none.
    needs_args: mode -> words that a started server's command line must hold, since without
        them no answer of that mode could count.
    """

    name: str
    kind: Literal["verdict", "nll", "speed"]
    modes: tuple[str, ...]
    to_case: ToCase
    request: ToRequest
    scorers: Mapping[str, Scorer]
    default_scorer: str
    token_scorers: Mapping[str, TokenScorer]
    score_vector: VectorScorer | None = None
    annotate_cell: CellAnnotator | None = None
    needs_args: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
