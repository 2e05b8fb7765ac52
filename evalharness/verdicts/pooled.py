"""Summaries over concurrency, and what a suite of this size could have admitted at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from evalharness.stats import pooled_noninferiority, smallest_admitted_margin, smallest_margin
from evalharness.verdicts.gate import limits
from evalharness.verdicts.inputs import OutcomeTable, PlanFacts
from evalharness.verdicts.paired import pair_of
from evalharness.verdicts.types import PooledVerdict, SuiteReach

_TYPICAL_DISCORDANCE = 0.05


def pool(plan: PlanFacts, tables: Sequence[OutcomeTable], arm: str) -> PooledVerdict | None:
    """Pool an arm over the concurrency levels of one suite and mode by the Rao-Scott way.

    Levels and replays of a case are observations of that case, never further cases. None
    where fewer than two levels have the arm and the control, or the cases differ.
    """
    usable = [t for t in tables if arm in t.arms and plan.control in t.arms]
    if len(usable) < 2 or len({t.case_ids for t in usable}) != 1 or len(usable[0].case_ids) < 2:
        return None
    stacked = np.concatenate(
        [pair_of(t, control=plan.control, candidate=arm).differences("worst") for t in usable],
        axis=1,
    )
    first = usable[0]
    margin = plan.margin(first.suite, first.mode)
    # without a margin only the limits are shown; they do not depend on it
    pooled = pooled_noninferiority(stacked, margin if margin is not None else 0.5, plan.alpha)
    lower, upper = limits(stacked, -float(ndtri(plan.alpha)))
    return PooledVerdict(
        arm=arm,
        suite=first.suite,
        mode=first.mode,
        levels=tuple(t.concurrency for t in usable),
        deff=pooled.deff,
        n_effective=pooled.n,
        estimate=pooled.estimate,
        lower=lower,
        upper=upper,
        margin=margin,
        p=pooled.p if margin is not None else None,
    )


def reach_of(plan: PlanFacts, table: OutcomeTable) -> SuiteReach:
    """Return the smallest margins that a suite of this many cases can admit."""
    n = len(table.case_ids)
    return SuiteReach(
        suite=table.suite,
        mode=table.mode,
        cases=n,
        margin=plan.margin(table.suite, table.mode),
        smallest_if_concordant=smallest_admitted_margin(0, 0, n, plan.alpha),
        smallest_at_power_80=smallest_margin(n, _TYPICAL_DISCORDANCE, plan.alpha),
    )
