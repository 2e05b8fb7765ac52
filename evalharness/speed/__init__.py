"""Speed at the endpoint: forced decodes of independent prompts, timed where they arrive.

Not a quality suite: nothing here gates. One repeat is one launch of each arm; an arm is called
faster or slower only where an interval over repeats excludes 1.
"""

from __future__ import annotations

from evalharness.speed.cases import to_case
from evalharness.speed.request import MODES, to_request
from evalharness.speed.score import SCORER, score_length
from evalharness.suite import Suite

SUITE = Suite(
    name="speed",
    kind="speed",
    modes=MODES,
    to_case=to_case,
    request=to_request,
    scorers={SCORER: score_length},
    default_scorer=SCORER,
    token_scorers={},
)
