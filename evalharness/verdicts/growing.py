"""A verdict that stays valid while a suite gains cases: looks cost nothing, reruns are refused.

The e-process accumulates evidence case by case, in the order the cases were drawn before any
was asked. New cases only: another run of an old case is a replay, and a corrected scorer is a
new analysis of the stored outputs, never new data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evalharness.errors import PlanError
from evalharness.stats import EProcess, noninferiority_e_process
from evalharness.verdicts.inputs import OutcomeTable, PlanFacts
from evalharness.verdicts.paired import pair_of


@dataclass(frozen=True, slots=True)
class GrowingVerdict:
    """An arm's always-valid verdict in one suite, mode and concurrency.

    `cases` seen so far; `evidence` reaches 1/alpha where the arm is admitted, and stays
    admitted whatever follows. Never "harm shown": this test looks one way only.
    """

    arm: str
    suite: str
    mode: str
    concurrency: int
    margin: float
    cases: int
    verdict: Literal["admitted", "undecided", "exploratory"]
    reason: str
    evidence: EProcess


def _refuse(batches: Sequence[OutcomeTable]) -> None:
    if not batches:
        raise PlanError("growing suite: expected at least one batch of cases, found none")
    first, seen = batches[0], set[str]()
    for table in batches:
        for name in ("suite", "mode", "concurrency", "scorer"):
            if getattr(table, name) != getattr(first, name):
                raise PlanError(
                    f"growing suite: {name} differs: {getattr(first, name)!r} and "
                    f"{getattr(table, name)!r}; judge cells of one kind only"
                )
        again = seen.intersection(table.case_ids)
        if again:
            raise PlanError(
                f"growing suite: {len(again)} cases come twice ({sorted(again)[0]}, ...); a "
                "rerun of a case is a replay, not a new case"
            )
        seen.update(table.case_ids)


def judge_growing(plan: PlanFacts, batches: Sequence[OutcomeTable], arm: str) -> GrowingVerdict:
    """Judge `arm` on batches of new cases in their drawn order, at the frozen margin.

    Unobserved cases count the worst way for the candidate; only the first replay counts.
    Raises PlanError where a case comes twice, the batches mix suites, modes, concurrency or
    scorers, or the plan has no margin for the suite.
    """
    _refuse(batches)
    first = batches[0]
    margin = plan.margin(first.suite, first.mode)
    if margin is None:
        raise PlanError(f"growing suite: the plan has no margin for {first.suite}.{first.mode}")
    steps = [
        pair_of(t, control=plan.control, candidate=arm).differences("worst")[:, 0] for t in batches
    ]
    evidence = noninferiority_e_process(np.concatenate(steps), margin, plan.alpha)
    found = f"evidence {evidence.e_value:.3g} after {len(evidence.e_values)} cases"
    verdict: Literal["admitted", "undecided", "exploratory"] = "undecided"
    reason = f"{found}; {evidence.threshold:g} admits"
    if evidence.rejected_at is not None:
        verdict = "admitted"
        reason = f"{evidence.threshold:g} was reached at case {evidence.rejected_at}; now {found}"
    if not plan.declared or plan.changed:
        verdict = "exploratory"
    return GrowingVerdict(
        arm=arm,
        suite=first.suite,
        mode=first.mode,
        concurrency=first.concurrency,
        margin=margin,
        cases=len(evidence.e_values),
        verdict=verdict,
        reason=reason,
        evidence=evidence,
    )
