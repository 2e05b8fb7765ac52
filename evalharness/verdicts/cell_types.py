"""What the verdicts say of one cell: an arm against control in one suite, mode and concurrency.

Differences are candidate minus control: fractions of cases, tokens of length, or nats per
token, where a positive NLL delta is worse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evalharness.stats import ExcessDiscordance, Interval
from evalharness.verdicts.inputs import NllMargin

Verdict = Literal["admitted", "harm shown", "undecided", "incomplete", "exploratory"]
# what precedence resolves to before a broken plan turns it into "exploratory"
Underlying = Literal["admitted", "harm shown", "undecided", "incomplete"]


@dataclass(frozen=True, slots=True)
class Discordance:
    """Wins, losses and both-right counts of two paired columns over n cases; unobserved
    cases are counted the worst way for the candidate."""

    both_right: int
    wins: int
    losses: int
    both_wrong: int

    @property
    def n(self) -> int:
        """Cases."""
        return self.both_right + self.wins + self.losses + self.both_wrong

    @property
    def share(self) -> float:
        """Discordant cases as a share of all."""
        return (self.wins + self.losses) / self.n if self.n else 0.0


@dataclass(frozen=True, slots=True)
class MeanContrast:
    """A paired difference of means (say output length in tokens): candidate minus control."""

    n: int
    control_mean: float
    candidate_mean: float
    estimate: float
    interval: Interval
    p: float


@dataclass(frozen=True, slots=True)
class RateContrast:
    """A paired difference of rates (say truncation): candidate minus control."""

    table: Discordance
    estimate: float
    interval: Interval
    p: float


@dataclass(frozen=True, slots=True)
class CellVerdict:
    """One arm against control in one suite, mode and concurrency.

    `gate` tells whether the cell decides for its arm (a margin and a gate concurrency).
    `table` is the worst case for the candidate; with R replays it counts R n pairs and
    `deff` scales them. `p` is the gate's p; `p_best` the same with unobserved cases at their
    best. `lower`, `upper`: the (1 - 2 alpha) score interval. `cases_needed_if_equal` (80%
    power of this cell alone) assumes the arms truly equal, `cases_needed_as_observed` the
    difference seen (None: no number would do). Where no case differed, the first assumes one
    that does, and the second is what passes if none ever differs; both are None where cases are
    unobserved. `smallest_margin` is the smallest that this table would have admitted.
    """

    arm: str
    suite: str
    mode: str
    concurrency: int
    gate: bool
    verdict: Verdict
    underlying: Underlying
    reason: str
    notes: tuple[str, ...]
    margin: float | None
    alpha: float
    replays: int
    table: Discordance
    control_correct: int
    candidate_correct: int
    unobserved_control: int
    unobserved_candidate: int
    deff: float
    estimate: float
    lower: float
    upper: float
    p_score: float | None
    p_exact: float | None
    p: float
    p_best: float
    p_harm: float
    p_harm_adjusted: float
    smallest_margin: float
    cases_needed_if_equal: int | None
    cases_needed_as_observed: int | None
    aa: Discordance | None
    aa_failed: bool
    excess: ExcessDiscordance | None
    excess_reason: str
    length: MeanContrast | None
    length_aa: MeanContrast | None
    truncation: RateContrast | None
    truncation_aa: RateContrast | None
    win_ids: tuple[str, ...]
    loss_ids: tuple[str, ...]
    unobserved_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenExtreme:
    """The token with the largest |delta|: a sample extreme, never given an interval."""

    delta: float
    case_id: str
    position: int
    token_id: int


@dataclass(frozen=True, slots=True)
class NllSummary:
    """NLL deltas of one arm against control (nats); the token-weighted mean has the interval.

    `interval` is the (1 - 2 alpha) studentized cluster-bootstrap interval, clusters = cases;
    NaN where the cases cannot carry one (fewer than 60, or none that moved).
    `tail_share` is the share of tokens with |delta| > tail_nats; a value that is null under
    the candidate only counts as one. `pure_*` repeat the mean on pure-decode tokens.
    """

    cases: int
    tokens: int
    nulls: int
    estimate: float
    se: float
    interval: Interval
    case_weighted: float
    perplexity_ratio: float
    quantile_50: float
    quantile_99: float
    tail_nats: float
    tail_share: float
    tail_cases: int
    largest: TokenExtreme | None
    pure_tokens: int | None
    pure_estimate: float | None
    pure_interval: Interval | None


@dataclass(frozen=True, slots=True)
class NllCellVerdict:
    """One arm's NLL against control in one mode and concurrency.

    Admitted needs both: the mean equivalent to zero within `margin.nats_per_token` (two
    one-sided tests, `p_mean`) and the tail share no more than `margin.tail_share` above the
    A/A launch's (`tail_upper`, one-sided 1 - alpha, `p_tail`). `p` is their maximum.
    `cases_needed`: what an undecided cell would need by itself, for 80% power of the mean and
    for a bound of the tail where no token moves; None where it is not undecided or no number
    is known.
    """

    arm: str
    mode: str
    concurrency: int
    gate: bool
    verdict: Verdict
    underlying: Underlying
    reason: str
    notes: tuple[str, ...]
    margin: NllMargin | None
    alpha: float
    replays: int
    summary: NllSummary | None
    aa: NllSummary | None
    aa_failed: bool
    unobserved_ids: tuple[str, ...]
    p_mean: float
    p_tail: float
    p: float
    p_harm: float
    p_harm_adjusted: float
    tail_excess: float | None
    tail_upper: float | None
    cases_needed: int | None
