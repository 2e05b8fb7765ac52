"""JSONSchemaBench: a reply must be one JSON text that its schema admits, judged strictly."""

from __future__ import annotations

from evalharness.schema.cases import to_case
from evalharness.schema.request import MODES, to_request
from evalharness.schema.score import SCORERS, score_vector
from evalharness.suite import Suite

SUITE = Suite(
    name="schema",
    kind="verdict",
    modes=MODES,
    to_case=to_case,
    request=to_request,
    scorers=SCORERS,
    default_scorer="strict/1",
    token_scorers={},
    score_vector=score_vector,
)
