"""BFCL v4, single turn, Python documents: function calls judged by their syntax tree."""

from __future__ import annotations

from evalharness.bfcl.cases import to_case
from evalharness.bfcl.request import MODES, to_request
from evalharness.bfcl.score import SCORERS, score_vector
from evalharness.suite import Suite

SUITE = Suite(
    name="bfcl",
    kind="verdict",
    modes=MODES,
    to_case=to_case,
    request=to_request,
    scorers=SCORERS,
    default_scorer="official/1",
    token_scorers={},
    score_vector=score_vector,
)
