"""(case, response) -> Score: did the server make the forced number of tokens?

The score only says whether a response can be timed; the times stand in the response itself.
"""

from __future__ import annotations

import json

from evalharness.chat import Reply, Unobserved, make_score
from evalharness.speed.answer import Answer, read_answer
from evalharness.types import Case, Response, Score

SCORER = "length/1"
LENGTH = "length"


def forced_length(response: Response) -> int | None:
    """Return the number of tokens that the stored request forces, None where it forces none."""
    try:
        length = json.loads(response.request_body)["max_tokens"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return length if type(length) is int else None


def length_problem(answer: Answer, forced: int | None) -> str:
    """Return why the answer is not known to have the forced length, "" where it is."""
    if answer.tokens is not None:
        return "" if answer.tokens == forced else f"length:{answer.tokens} of {forced}"
    # without a count, the server's word that the limit ended the answer has to do
    return "" if answer.finish_reason == LENGTH else "length_unknown"


def score_length(case: Case, response: Response) -> Score:
    """Return the Score of one response. Never raises on any response."""
    del case
    answer = read_answer(response)
    reply: Reply | Unobserved
    if isinstance(answer, Unobserved):
        reply, problem = answer, answer.reason
    else:
        problem = length_problem(answer, forced_length(response))
        reply = Reply("", (), answer.finish_reason, answer.tokens)
        if problem == "length_unknown":
            reply = Unobserved(problem)
    return make_score(
        response, reply, correct=not problem, reason=problem or "valid", scorer=SCORER
    )
