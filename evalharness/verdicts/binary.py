"""The verdict of one measured cell, given harm adjusted over all declared contrasts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from evalharness.stats import ExcessDiscordance, design_effect, excess_discordance
from evalharness.verdicts.cell_types import CellVerdict, Underlying
from evalharness.verdicts.contrasts import length_contrast, truncation_contrast
from evalharness.verdicts.gate import cases_needed, effective_counts, limits, smallest_margin_of
from evalharness.verdicts.inputs import UNOBSERVED, PlanFacts
from evalharness.verdicts.measured import Measured
from evalharness.verdicts.paired import Pair, net_signs
from evalharness.verdicts.precedence import Evidence, resolve
from evalharness.verdicts.types import AaCheck
from evalharness.verdicts.wording import cell_notes, cell_reason, need_text


@dataclass(frozen=True, slots=True)
class _Needed:
    """Cases that an undecided cell would need; None where it is not undecided, where cases are
    unobserved, or where none would do."""

    if_equal: int | None
    as_observed: int | None


def _excess(pair: Pair) -> tuple[ExcessDiscordance | None, str]:
    if pair.control.shape[0] < 2:
        return None, "not estimable: needs two replays of each arm"
    seen = pair.observed()
    if seen.control.shape[1] == 0:
        return None, "not estimable: no case was observed in every replay"
    return excess_discordance(seen.control[:2].T, seen.candidate[:2].T), ""


def _after_aa(verdict: Underlying, aa: AaCheck | None) -> Underlying:
    """Nobody is admitted where equal launches differ, or were not both seen."""
    if verdict != "admitted" or aa is None or not (aa.failed or aa.incomplete):
        return verdict
    return "undecided" if aa.failed else "incomplete"


def _needed(m: Measured, verdict: Underlying, alpha: float) -> _Needed:
    if verdict != "undecided" or m.margin is None or m.worst.p <= alpha:
        return _Needed(None, None)
    if m.pair.unobserved.any():
        # it would rest on losses that nobody saw: what is lacking is answers, not cases
        return _Needed(None, None)
    counts = effective_counts(m.pair.differences("worst"))
    return _Needed(
        cases_needed(counts, margin=m.margin, alpha=alpha, as_observed=False),
        cases_needed(counts, margin=m.margin, alpha=alpha, as_observed=True),
    )


def _ids(m: Measured, sign: int) -> tuple[str, ...]:
    signs = net_signs(m.pair.differences("worst"))
    return tuple(m.table.case_ids[i] for i in np.flatnonzero(signs == sign))


def judge_cell(
    plan: PlanFacts, m: Measured, *, harm_worst: float, harm_best: float, aa: AaCheck | None
) -> CellVerdict:
    """Turn a measured contrast into its verdict, given the adjusted p-values of harm."""
    resolved = resolve(
        worst=Evidence(m.worst.p, harm_worst),
        best=Evidence(m.best.p, harm_best),
        alpha=plan.alpha,
    )
    return _build(plan, m, verdict=_after_aa(resolved, aa), harm=harm_worst, aa=aa)


def _build(
    plan: PlanFacts, m: Measured, *, verdict: Underlying, harm: float, aa: AaCheck | None
) -> CellVerdict:
    alpha, rows, worst = plan.alpha, m.table, m.pair.differences("worst")
    counts, shown, needed = (
        m.pair.discordance(),
        m.pair.bounded("worst"),
        _needed(m, verdict, alpha),
    )
    lower, upper = limits(worst, -float(ndtri(alpha)))
    excess, excess_reason = _excess(m.pair)
    twin = plan.aa if plan.aa in rows.arms else None
    need = need_text(
        needed.if_equal,
        needed.as_observed,
        counts=effective_counts(worst),
        n=m.pair.control.shape[1],
    )
    # fmt: off
    return CellVerdict(
        arm=m.arm, suite=rows.suite, mode=rows.mode, concurrency=rows.concurrency, gate=m.gate,
        verdict=verdict, underlying=verdict,
        reason=cell_reason(m, verdict, alpha=alpha, aa=aa, need=need),
        notes=cell_notes(m, verdict, alpha=alpha, aa=aa),
        margin=m.margin, alpha=alpha, replays=rows.replays, table=counts,
        control_correct=int(shown.control.sum()), candidate_correct=int(shown.candidate.sum()),
        unobserved_control=int((m.pair.control == UNOBSERVED).sum()),
        unobserved_candidate=int((m.pair.candidate == UNOBSERVED).sum()),
        deff=design_effect(worst) if rows.replays > 1 else 1.0,
        estimate=(counts.wins - counts.losses) / counts.n,
        lower=lower, upper=upper,
        p_score=None if m.margin is None else m.worst.p_score, p_exact=m.worst.p_exact,
        p=m.worst.p, p_best=m.best.p, p_harm=m.harm_worst, p_harm_adjusted=harm,
        smallest_margin=smallest_margin_of(worst, alpha),
        cases_needed_if_equal=needed.if_equal, cases_needed_as_observed=needed.as_observed,
        aa=aa.table if aa is not None else None, aa_failed=aa is not None and aa.failed,
        excess=excess, excess_reason=excess_reason,
        length=length_contrast(rows, control=plan.control, candidate=m.arm, alpha=alpha),
        length_aa=length_contrast(rows, control=plan.control, candidate=twin, alpha=alpha),
        truncation=truncation_contrast(rows, control=plan.control, candidate=m.arm, alpha=alpha),
        truncation_aa=truncation_contrast(rows, control=plan.control, candidate=twin, alpha=alpha),
        win_ids=_ids(m, 1), loss_ids=_ids(m, -1),
        unobserved_ids=tuple(rows.case_ids[i] for i in np.flatnonzero(m.pair.unobserved)),
    )
    # fmt: on
