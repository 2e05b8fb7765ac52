"""What `evalharness plan` says: cases for a margin, the margin of a suite, and the table.

Pure: numbers in, values and text out. Margins and discordance are fractions of cases; margins
of log-probabilities are nats and a share of tokens, and have rules of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evalharness.stats import (
    EXACT_LIMIT,
    admission_probability,
    clopper_pearson,
    noninferiority,
    required_cases,
    smallest_admitted_margin,
    smallest_margin,
)
from evalharness.verdicts.nll_measured import MIN_CASES
from evalharness.verdicts.nll_tail import cases_to_bound

TABLE_MARGINS = (0.01, 0.02, 0.03, 0.05, 0.10)
TABLE_DISCORDANCE = (0.02, 0.05, 0.10)
TABLE_POWERS = (0.8, 0.9)


@dataclass(frozen=True, slots=True)
class CasesNeeded:
    """Cases for one margin. `by_score` is the score test's number, `by_gate` that of the whole
    gate, max(score, exact); `if_half_lost` by the gate where half the margin is truly lost
    (None where the discordance is too small for that)."""

    margin: float
    discordance: float
    alpha: float
    power: float
    by_score: int
    by_gate: int
    if_half_lost: int | None


@dataclass(frozen=True, slots=True)
class SuiteReach:
    """What a suite of `cases` can admit: with no case differing at all, and with the given
    power at the given discordance. `loss_budget` counts the losses that the gate still admits
    at `margin` without a win (None: none admits, or no margin asked); `power_at_margin` is
    enumerated up to 400 cases (None above, or where no margin was asked)."""

    cases: int
    discordance: float
    alpha: float
    power: float
    smallest_if_concordant: float
    smallest_at_power: float
    margin: float | None
    loss_budget: int | None
    power_at_margin: float | None


@dataclass(frozen=True, slots=True)
class NllReach:
    """What cases of log-probabilities can bound at best, with no token moved: the share of
    cases with a moved token, and with it the tail's share of tokens (None where the tokens of
    a case are not known)."""

    cases: int
    alpha: float
    tokens_per_case: float | None
    share_of_cases: float
    tail_share: float | None


def cases_needed(
    margin: float, discordance: float, *, alpha: float = 0.025, power: float = 0.8
) -> CasesNeeded:
    """Return the cases that a margin needs. ValueError on values out of range."""
    half = -margin / 2
    lost = None
    if discordance >= margin / 2:
        lost = required_cases(margin, discordance, alpha, power, difference=half, exact=True)
    return CasesNeeded(
        margin=margin,
        discordance=discordance,
        alpha=alpha,
        power=power,
        by_score=required_cases(margin, discordance, alpha, power),
        by_gate=required_cases(margin, discordance, alpha, power, exact=True),
        if_half_lost=lost,
    )


def _loss_budget(cases: int, margin: float, alpha: float) -> int | None:
    """Most losses, without a win, that the gate admits: p grows with every loss."""
    low, high = -1, cases
    while low < high:
        middle = (low + high + 1) // 2
        if noninferiority(0, middle, cases, margin, alpha).verdict == "admitted":
            low = middle
        else:
            high = middle - 1
    return low if low >= 0 else None


def can_admit(cases: int, margin: float, *, alpha: float) -> bool:
    """Say whether the gate admits at this margin where no case differs."""
    return noninferiority(0, 0, cases, margin, alpha).verdict == "admitted"


def nll_reach(cases: int, tokens_per_case: float | None, *, alpha: float = 0.025) -> NllReach:
    """Return what this many NLL cases bound at best. ValueError on values out of range."""
    share = clopper_pearson(0, cases, 1 - 2 * alpha).upper
    tail = None if tokens_per_case is None else share / tokens_per_case
    return NllReach(cases, alpha, tokens_per_case, share, tail)


def nll_lacks(reach: NllReach, tail_share: float) -> str:
    """Say what the cases lack for an NLL margin with this tail share; "" where nothing."""
    needs = [f"{MIN_CASES} for the mean"] if reach.cases < MIN_CASES else []
    if reach.tokens_per_case is not None:
        tail = cases_to_bound(tail_share, reach.tokens_per_case, alpha=reach.alpha)
        if reach.cases < tail:
            needs.append(f"{tail} for a tail share of {tail_share:g}")
    return f"it needs {' and '.join(needs)}" if needs else ""


def suite_reach(
    cases: int,
    discordance: float,
    *,
    alpha: float = 0.025,
    power: float = 0.8,
    margin: float | None = None,
) -> SuiteReach:
    """Return what a suite of this many cases can admit. ValueError on values out of range."""
    enumerated = None
    if margin is not None and cases <= EXACT_LIMIT:
        rate = discordance / 2
        enumerated = admission_probability(cases, margin, p_win=rate, p_loss=rate, alpha=alpha)
    concordant = smallest_admitted_margin(0, 0, cases, alpha)
    # the power formula is the score test's; for very few cases the gate asks for more
    powered = max(smallest_margin(cases, discordance, alpha, power), concordant)
    return SuiteReach(
        cases=cases,
        discordance=discordance,
        alpha=alpha,
        power=power,
        smallest_if_concordant=concordant,
        smallest_at_power=powered,
        margin=margin,
        loss_budget=None if margin is None else _loss_budget(cases, margin, alpha),
        power_at_margin=enumerated,
    )


def _grid(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def cases_table(alpha: float = 0.025) -> str:
    """Return the table of cases needed: margins down, discordance across, 80%/90% power."""
    head = ["margin", *(f"{share:.0%} differ" for share in TABLE_DISCORDANCE)]
    rows = [head]
    for margin in TABLE_MARGINS:
        cells = [
            "/".join(str(required_cases(margin, share, alpha, power)) for power in TABLE_POWERS)
            for share in TABLE_DISCORDANCE
        ]
        rows.append([points(margin), *cells])
    return f"cases needed for 80%/90% power, alpha {alpha:g} one-sided, arms equal\n{_grid(rows)}"


def points(share: float) -> str:
    """Return a share of cases in points: 0.05 -> "5 points"."""
    text = f"{100 * share:.2f}".rstrip("0").rstrip(".")
    return f"{text} point" if text == "1" else f"{text} points"


def cases_text(answer: CasesNeeded) -> str:
    """Return the sentence that answers "how many cases does this margin need"."""
    lines = [
        f"margin {points(answer.margin)}, {answer.discordance:.1%} of cases differing, alpha "
        f"{answer.alpha:g} one-sided, power {answer.power:.0%}:",
        f"  {answer.by_score} cases if the arms are equal"
        + (
            f" ({answer.by_gate} for the whole gate, max of score and exact)"
            if answer.by_gate != answer.by_score
            else ""
        ),
    ]
    if answer.if_half_lost is not None:
        lines.append(f"  {answer.if_half_lost} cases if half the margin is truly lost")
    return "\n".join(lines)


def reach_text(reach: SuiteReach) -> str:
    """Return the sentences that say what a suite of this size can admit."""
    lines = [
        f"{reach.cases} cases, alpha {reach.alpha:g} one-sided:",
        f"  smallest margin with no case differing at all: {points(reach.smallest_if_concordant)}",
        f"  smallest margin with {reach.power:.0%} power at {reach.discordance:.1%} differing: "
        f"{points(reach.smallest_at_power)}",
    ]
    if reach.margin is not None and reach.loss_budget is None:
        lines.append(f"  a margin of {points(reach.margin)} cannot be admitted at all")
    elif reach.margin is not None:
        lines.append(
            f"  a margin of {points(reach.margin)} admits up to {reach.loss_budget} losses "
            "without a win"
        )
    if reach.power_at_margin is not None and reach.margin is not None:
        lines.append(
            f"  chance to admit at {points(reach.margin)}, arms equal: {reach.power_at_margin:.0%}"
        )
    return "\n".join(lines)


def nll_bound(reach: NllReach) -> str:
    """Return the clause that says what the cases bound the tail to at best."""
    if reach.tail_share is None or reach.tokens_per_case is None:
        return (
            f"with no token moved they bound the tail share to {reach.share_of_cases:.3g} at "
            "best, divided by the tokens of a case (not known here: the data is not at hand)"
        )
    return (
        f"with no token moved they bound the tail share to {reach.tail_share:.3g} at best "
        f"(about {reach.tokens_per_case:.3g} tokens a case)"
    )


def nll_text(reach: NllReach) -> str:
    """Return the sentences that say what a suite of log-probabilities can admit."""
    few = ": too few, no margin can be admitted" if reach.cases < MIN_CASES else ""
    return (
        f"{reach.cases} cases of log-probabilities, alpha {reach.alpha:g} one-sided:\n"
        f"  a margin in nats needs at least {MIN_CASES} cases{few}\n"
        f"  {nll_bound(reach)}"
    )
