"""Which verdict wins: harm shown > incomplete > undecided > admitted.

A verdict is taken twice, with the unobserved cases at their worst and at their best for the
candidate. Where the two differ the run did not observe enough: incomplete.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from evalharness.errors import EXIT_HARM, EXIT_INCOMPLETE, EXIT_OK, EXIT_UNDECIDED
from evalharness.verdicts.cell_types import Underlying, Verdict


@dataclass(frozen=True, slots=True)
class Evidence:
    """p-values of non-inferiority and (adjusted) harm under one bound of the unobserved."""

    p: float
    p_harm: float


def _single(evidence: Evidence, alpha: float) -> Literal["admitted", "harm shown", "undecided"]:
    if evidence.p <= alpha:
        return "admitted"
    return "harm shown" if evidence.p_harm <= alpha else "undecided"


def resolve(*, worst: Evidence, best: Evidence, alpha: float) -> Underlying:
    """Return the verdict both bounds agree on, else "incomplete"."""
    at_worst = _single(worst, alpha)
    if at_worst == "admitted" or at_worst == _single(best, alpha):
        return at_worst
    return "incomplete"


def combine(verdicts: Iterable[Underlying]) -> Underlying:
    """Return the verdict of an arm whose every cell must pass (intersection-union).

    No cells at all decide nothing: "undecided".
    """
    found = set(verdicts)
    order: tuple[Underlying, ...] = ("harm shown", "incomplete", "undecided", "admitted")
    return next((verdict for verdict in order if verdict in found), "undecided")


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return the exit code of the worst verdict; no arm at all is undecided."""
    found = set(verdicts)
    if "harm shown" in found:
        return EXIT_HARM
    if "incomplete" in found:
        return EXIT_INCOMPLETE
    return EXIT_OK if found == {"admitted"} else EXIT_UNDECIDED
