"""The sentences of an NLL verdict: which half holds, at which margin, and what it would take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri

from evalharness.verdicts.cell_types import Underlying
from evalharness.verdicts.nll_measured import MIN_CASES, MeasuredNll
from evalharness.verdicts.nll_tail import cases_to_bound
from evalharness.verdicts.types import AaCheck
from evalharness.verdicts.wording import p_text

MIN_TAIL_CASES = 2


@dataclass(frozen=True, slots=True)
class NllNeed:
    """Cases that an undecided cell would need by itself. None: that half passes, or unknown.

    `mean`: 80% power where the arms are truly equal; `tail`: the fewest that bound the tail
    where no token moves. `unknown`: the tail fails for tokens that did move, so that no number
    of cases is known to be enough.
    """

    mean: int | None = None
    tail: int | None = None
    unknown: bool = False

    @property
    def cases(self) -> int | None:
        """The larger of the two; None where neither is needed, or one is not known."""
        known = [n for n in (self.mean, self.tail) if n is not None]
        return None if self.unknown else max(known, default=None)


def nll_need(m: MeasuredNll, verdict: Underlying, *, alpha: float, aa: AaCheck | None) -> NllNeed:
    """Return what an undecided cell would need; nothing where cases are not what it lacks."""
    if verdict != "undecided" or m.margin is None or aa is None or aa.failed:
        return NllNeed()
    mean, tail = None, None
    if m.refused:
        mean = MIN_CASES
    elif m.p_mean > alpha and m.summary is not None and m.summary.se > 0:
        # two one-sided tests, 80% power where the arms are truly equal
        reach = -float(ndtri(alpha)) - float(ndtri(0.1))
        ratio = reach * m.summary.se / m.margin.nats_per_token
        mean = max(MIN_CASES, math.ceil(m.summary.cases * ratio**2))
    if m.tail is not None and m.tail.floor > m.margin.tail_share:
        tail = cases_to_bound(m.margin.tail_share, m.tail.tokens_per_case, alpha=alpha)
    moved = m.summary is not None and m.summary.tail_cases > 0
    return NllNeed(mean, tail, unknown=m.p_tail > alpha and (moved or tail is None))


def _halves(m: MeasuredNll, alpha: float) -> str:
    """Say of the mean and of the tail whether it passes, with estimate, p and margin."""
    if m.margin is None:
        return ""
    mean = "the mean is not shown equivalent"
    if m.refused:
        mean = f"the mean is {m.refused}"
    elif m.p_mean <= alpha:
        mean = "the mean is shown equivalent"
    if m.summary is not None and not m.refused:
        mean += (
            f" ({m.summary.estimate:+.6f} nats/token, {p_text(m.p_mean)} at "
            f"{m.margin.nats_per_token:g} nats)"
        )
    if m.tail is None:
        few = len(m.table.case_ids) - len(m.unobserved) < MIN_TAIL_CASES
        lack = "with fewer than two observed cases" if few else "without an A/A launch"
        return f"{mean}; the tail cannot be judged {lack}; alpha {alpha:g}"
    tail = "the tail is bounded" if m.p_tail <= alpha else "the tail is not bounded"
    return (
        f"{mean}; {tail} (excess over A/A {m.tail.excess:.4g} of tokens, {p_text(m.p_tail)} at "
        f"{m.margin.tail_share:g}); alpha {alpha:g}"
    )


def nll_reason(m: MeasuredNll, verdict: Underlying, *, alpha: float, aa: AaCheck | None) -> str:
    """Return the sentence of one NLL cell."""
    if m.margin is None:
        return f"no margin declared for nll.{m.table.mode}: described, not judged"
    at = _halves(m, alpha)
    if verdict == "harm shown":
        return f"the token probabilities have changed: {at}"
    if verdict == "incomplete":
        if m.unobserved:
            return f"{len(m.unobserved)} unobserved cases have no bound: {at}"
        return "the A/A launch is incomplete" if m.summary is not None else "no usable cases"
    if m.refused:
        return m.refused
    if verdict == "undecided" and aa is not None and aa.failed:
        return f"{aa.reason}: nobody is admitted here"
    if verdict == "undecided":
        need = _need_text(m, nll_need(m, verdict, alpha=alpha, aa=aa))
        return f"equivalence is not shown: {at}{need}"
    return f"equivalent within the margins: {at}"


def _need_text(m: MeasuredNll, need: NllNeed) -> str:
    parts = []
    if need.mean is not None:
        parts.append(f"the mean needs about {need.mean} cases for 80% power if the arms are equal")
    if need.tail is not None and m.tail is not None and m.summary is not None:
        parts.append(
            f"with no token exceeding at all, {m.summary.cases} cases bound the tail share only "
            f"to {m.tail.floor:.4g} (one moved token a moved case assumed); the first number "
            f"that passes is {need.tail}"
        )
    return "".join(f"; {part}" for part in parts)


def nll_notes(m: MeasuredNll) -> tuple[str, ...]:
    """Return what a reader of the cell has to know beside its sentence."""
    notes: list[str] = []
    if m.summary is not None and m.summary.nulls:
        notes.append(f"{m.summary.nulls} null or clamped values, counted and not summed")
    if m.summary is not None and m.summary.se == 0 and m.summary.estimate == 0:
        notes.append("every token delta is exactly zero")
    if m.tail is not None and m.summary is not None and not m.summary.tail_cases:
        notes.append("no token moved: the tail's bound assumes one moved token a moved case")
    if m.table.replays > 1:
        notes.append(f"{m.table.replays} replays stay inside their cases; cases are the clusters")
    return tuple(notes)
