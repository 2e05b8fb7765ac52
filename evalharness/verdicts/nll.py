"""The NLL verdict of one arm in one mode and concurrency: the mean two-sided, and the tail.

Lower is not better: sharpened logits lower the NLL of greedy text, so a shift either way is a
change of the model. The mean has no trustworthy interval below 60 cases and is refused there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalharness.stats import sign_test
from evalharness.verdicts.cell_types import NllCellVerdict, NllSummary, Underlying
from evalharness.verdicts.inputs import NllMargin, NllTable, PlanFacts
from evalharness.verdicts.nll_data import (
    RESAMPLES,
    Deltas,
    deltas,
    exceeding,
    mean_of,
    observed_cases,
    summarise,
)
from evalharness.verdicts.nll_measured import MIN_CASES, MeasuredNll
from evalharness.verdicts.nll_tail import TailTest, tail_test
from evalharness.verdicts.nll_wording import nll_need, nll_notes, nll_reason
from evalharness.verdicts.types import AaCheck

# describes the tail where no margin was declared
_DEFAULT_TAIL_NATS = 0.5
_DISPLAY_NATS = 0.001


def _arm_deltas(plan: PlanFacts, table: NllTable, arm: str) -> Deltas:
    cases = observed_cases(table, (plan.control, arm))
    return deltas(table, control=plan.control, candidate=arm, cases=cases)


def _over(plan: PlanFacts, table: NllTable, arm: str, *, tail_nats: float) -> NDArray[np.float64]:
    """Exceeding tokens per case of the table, 0 where the case was not observed."""
    d = _arm_deltas(plan, table, arm)
    out = np.zeros(len(table.case_ids))
    out[observed_cases(table, (plan.control, arm))] = exceeding(d, tail_nats)
    return out


def _tail(plan: PlanFacts, table: NllTable, arm: str, margin: NllMargin) -> TailTest | None:
    if plan.aa is None or plan.aa not in table.arms:
        return None
    cases = observed_cases(table, (plan.control, arm))
    if int(cases.sum()) < 2:
        return None
    # an A/A case that was not observed counts no exceedance: the worst for the candidate
    return tail_test(
        _over(plan, table, arm, tail_nats=margin.tail_nats)[cases],
        _over(plan, table, plan.aa, tail_nats=margin.tail_nats)[cases],
        (table.sizes * table.replays)[cases].astype(np.float64),
        margin=margin.tail_share,
        alpha=plan.alpha,
        n_resamples=RESAMPLES,
        seed=plan.seed,
    )


@dataclass(frozen=True, slots=True)
class _Mean:
    """The mean's p-values (1 where refused or not judged) and the summary around it."""

    p: float
    p_shift: float
    refused: str
    summary: NllSummary | None


def _mean(plan: PlanFacts, d: Deltas, margin: NllMargin | None) -> _Mean:
    found = mean_of(
        d,
        # without a margin only the interval is shown: this one keeps rounding out of it
        margin_nats=_DISPLAY_NATS if margin is None else margin.nats_per_token,
        alpha=plan.alpha,
        seed=plan.seed,
    )
    refused = f"refused: {found[1] if found else 0} cases, a mean NLL needs {MIN_CASES}"
    if found is None:
        return _Mean(1.0, 1.0, refused, None)
    test, cases = found
    tail_nats = _DEFAULT_TAIL_NATS if margin is None else margin.tail_nats
    summary = summarise(d, test, tail_nats=tail_nats, alpha=plan.alpha, seed=plan.seed)
    if margin is None or cases < MIN_CASES:
        return _Mean(1.0, 1.0, "" if margin is None else refused, summary)
    return _Mean(test.p, test.p_shift, "", summary)


def _sign_harm(d: Deltas, hidden: int) -> float:
    """Two-sided exact sign test of the cases' sums, unobserved cases counted against it.

    Under "no change" control and candidate are exchangeable, so each sign is a fair coin; its
    p can be as small as Holm over many contrasts needs, where a bootstrap's p cannot.
    """
    sums = d.per_case(np.nan_to_num(d.values, nan=0.0))
    up, down = int((sums > 0).sum()), int((sums < 0).sum())
    more, fewer = max(up, down), min(up, down) + hidden
    return min(1.0, 2 * sign_test(more, fewer).p_one_sided)


def _harm(plan: PlanFacts, d: Deltas, *, mean: _Mean, tail: TailTest | None, hidden: int) -> float:
    """Bonferroni over three tests: mean shift, signs of the cases, tail. A test counts only
    where its own equivalence is not shown: a tiny but certain shift is no harm."""
    tests = [1.0]
    if mean.p > plan.alpha and not mean.refused:
        tests.append(_sign_harm(d, hidden))
        tests.append(1.0 if hidden else mean.p_shift)
    if tail is not None and tail.p > plan.alpha and not hidden:
        tests.append(tail.p_harm)
    return min(1.0, 3 * min(tests))


def measure_nll(plan: PlanFacts, table: NllTable, arm: str) -> MeasuredNll:
    """Compute the p-values of `arm` against the control."""
    margin = plan.nll_margin(table.mode)
    d = _arm_deltas(plan, table, arm)
    rows = [table.arms.index(name) for name in (plan.control, arm)]
    seen = table.observed[rows].all(axis=(0, 1))
    hidden = tuple(table.case_ids[i] for i in np.flatnonzero(~seen))
    mean = _mean(plan, d, margin)
    tail = None if margin is None else _tail(plan, table, arm, margin)
    harm = 1.0
    if margin is not None:
        harm = _harm(plan, d, mean=mean, tail=tail, hidden=len(hidden))
    return MeasuredNll(
        arm=arm,
        table=table,
        margin=margin,
        gate=margin is not None and table.concurrency in plan.gate_concurrency,
        summary=mean.summary,
        p_mean=mean.p,
        p_tail=tail.p if tail is not None else 1.0,
        p_harm=harm,
        tail=tail,
        refused=mean.refused,
        unobserved=hidden,
    )


def check_nll_aa(plan: PlanFacts, table: NllTable, *, contrasts: int = 1) -> AaCheck | None:
    """Judge the A/A launch's own deltas; None where the plan declared none.

    It fails where its tail share exceeds the declared one, or its mean is shown (over all the
    `contrasts` judged together) to differ from zero without being equivalent to it.
    """
    if plan.aa is None:
        return None
    margin = plan.nll_margin(table.mode)
    mean = _Mean(1.0, 1.0, "", None)
    if plan.aa in table.arms and plan.control in table.arms:
        mean = _mean(plan, _arm_deltas(plan, table, plan.aa), margin)
    summary, failed = mean.summary, False
    reason = "the declared A/A launch has no data here"
    if summary is not None:
        reason = f"A/A mean {summary.estimate:+.6f} nats/token, tail share {summary.tail_share:.5f}"
    if summary is not None and margin is not None:
        drifted = mean.p > plan.alpha and mean.p_shift * contrasts <= plan.alpha
        failed = drifted or summary.tail_share > margin.tail_share
    return AaCheck(
        suite="nll",
        mode=table.mode,
        concurrency=table.concurrency,
        table=None,
        nll=summary,
        p=mean.p_shift,
        failed=failed,
        incomplete=summary is None,
        reason=f"two launches of the control differ: {reason}" if failed else reason,
    )


def _verdict(m: MeasuredNll, *, harm: float, alpha: float, aa: AaCheck | None) -> Underlying:
    if max(m.p_mean, m.p_tail) > alpha and harm <= alpha:
        return "harm shown"
    if m.unobserved or m.summary is None or (aa is not None and aa.incomplete):
        return "incomplete"
    if max(m.p_mean, m.p_tail) <= alpha and not (aa is not None and aa.failed):
        return "admitted"
    return "undecided"


def judge_nll(
    plan: PlanFacts, m: MeasuredNll, *, harm: float, aa: AaCheck | None
) -> NllCellVerdict:
    """Turn a measured NLL contrast into its verdict, given the adjusted p-value of harm."""
    verdict = _verdict(m, harm=harm, alpha=plan.alpha, aa=aa)
    need = nll_need(m, verdict, alpha=plan.alpha, aa=aa)
    return NllCellVerdict(
        arm=m.arm,
        mode=m.table.mode,
        concurrency=m.table.concurrency,
        gate=m.gate,
        verdict=verdict,
        underlying=verdict,
        reason=nll_reason(m, verdict, alpha=plan.alpha, aa=aa),
        notes=nll_notes(m),
        margin=m.margin,
        alpha=plan.alpha,
        replays=m.table.replays,
        summary=m.summary,
        aa=aa.nll if aa is not None else None,
        aa_failed=aa is not None and aa.failed,
        unobserved_ids=m.unobserved,
        p_mean=m.p_mean,
        p_tail=m.p_tail,
        p=max(m.p_mean, m.p_tail),
        p_harm=m.p_harm,
        p_harm_adjusted=harm,
        tail_excess=m.tail.excess if m.tail is not None else None,
        tail_upper=m.tail.upper if m.tail is not None else None,
        cases_needed=need.cases,
    )
