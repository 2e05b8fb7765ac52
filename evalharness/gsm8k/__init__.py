"""GSM8K: grade-school word problems; the final number is judged in three readings."""

from __future__ import annotations

from evalharness.gsm8k.cases import to_case
from evalharness.gsm8k.request import MODES, to_request
from evalharness.gsm8k.score import SCORERS, score_vector
from evalharness.suite import Suite

SUITE = Suite(
    name="gsm8k",
    kind="verdict",
    modes=MODES,
    to_case=to_case,
    request=to_request,
    scorers=SCORERS,
    default_scorer="strict/1",
    token_scorers={},
    score_vector=score_vector,
)
