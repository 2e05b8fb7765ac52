"""NLL of fixed continuations: every arm scores exactly the same tokens, in prefill and decode."""

from __future__ import annotations

from evalharness.nll.cases import to_case
from evalharness.nll.overlap import annotate
from evalharness.nll.request import DECODE, MODES, PROCESSOR_ARGS, to_request
from evalharness.nll.score import SCORER, score_tokens
from evalharness.suite import Suite

SUITE = Suite(
    name="nll",
    kind="nll",
    modes=MODES,
    to_case=to_case,
    request=to_request,
    scorers={},
    default_scorer=SCORER,
    token_scorers={SCORER: score_tokens},
    annotate_cell=annotate,
    needs_args={DECODE: PROCESSOR_ARGS},
)
