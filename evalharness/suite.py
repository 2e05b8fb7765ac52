"""What a suite is: four functions and a name. The loop, the store and the report know no more.

To add one, copy the smallest package (`gsm8k`), write its functions, add a manifest and one
line in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evalharness.types import Case, NllRow, Request, RequestContext, Response, Score

ToCase = Callable[[str, Mapping[str, Any]], Case]
ToRequest = Callable[[Case, RequestContext], Request]
Scorer = Callable[[Case, Response], Score]
TokenScorer = Callable[[Case, Response], NllRow]
VectorScorer = Callable[[Mapping[str, Any], str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite.

    kind: "verdict" suites give Scores, "nll" suites give NllRows.
    modes: how a case may be asked; each is a cell of its own.
    to_case: (row id, raw row of the data source) -> Case. Raises ManifestError on a bad row.
    request: (Case, RequestContext) -> Request; deterministic.
    scorers: scorer version ("official/1") -> function. Never raise on any response.
    score_vector: one row of `evalharness score`'s input and a scorer version -> output row;
        None where the suite has no vectors.
    """

    name: str
    kind: Literal["verdict", "nll"]
    modes: tuple[str, ...]
    to_case: ToCase
    request: ToRequest
    scorers: Mapping[str, Scorer]
    default_scorer: str
    token_scorers: Mapping[str, TokenScorer]
    score_vector: VectorScorer | None = None
