"""Results of the statistics: frozen values, one class per question.

A difference is always candidate minus control (first minus second), as a fraction of cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

GateVerdict = Literal["admitted", "harm shown", "undecided"]


class Interval(NamedTuple):
    """A confidence interval; unpacks and compares as the pair (lower, upper)."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class SignTest:
    """Exact sign test on the discordant cases; one-sided towards losses (harm)."""

    p_one_sided: float
    p_two_sided: float
    p_mid_one_sided: float
    p_mid_two_sided: float


@dataclass(frozen=True, slots=True)
class McNemar:
    """McNemar's test of a paired table, two-sided; p = 1 where there is no discordance."""

    chi2: float
    p_chi2: float
    chi2_cc: float
    p_cc: float
    p_exact: float
    p_mid: float


@dataclass(frozen=True, slots=True)
class Noninferiority:
    """The gate for one contrast.

    `z` is the score statistic at d = -margin; `lower` the one-sided (1 - alpha) score limit
    of the difference (a fraction); `p_exact` is None above 400 cases; `p` = max(score, exact).
    """

    z: float
    p_score: float
    p_exact: float | None
    p: float
    lower: float
    verdict: GateVerdict


@dataclass(frozen=True, slots=True)
class CochranQ:
    """Cochran's Q over k matched columns; `p` from chi-square with `df` degrees."""

    q: float
    df: int
    p: float


@dataclass(frozen=True, slots=True)
class Tost:
    """Two one-sided tests; `interval` is the (1 - 2 alpha) interval of the mean difference."""

    p: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class RatioEstimate:
    """sum(S)/sum(m) over clusters with its linearised standard error (unit of S per m)."""

    estimate: float
    se: float


@dataclass(frozen=True, slots=True)
class BootstrapInterval:
    """A cluster-bootstrap interval; `se` is the linearised cluster standard error."""

    estimate: float
    se: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Two one-sided bootstrap tests of a ratio against -margin and +margin.

    `p_lower` tests estimate <= -margin, `p_upper` tests estimate >= margin, `p` is their
    maximum; `p_shift` is two-sided against zero; `interval` is the (1 - 2 alpha) interval.
    """

    estimate: float
    se: float
    interval: Interval
    p_lower: float
    p_upper: float
    p: float
    p_shift: float
    method: Literal["studentized", "sparse"]


@dataclass(frozen=True, slots=True)
class FactorialEffect:
    """One effect of a two-level factorial; `lower` and `upper` are simultaneous.

    `factors` indexes the columns of the levels; `p` is the pointwise two-sided sign-flip test.
    """

    name: str
    factors: tuple[int, ...]
    estimate: float
    se: float
    lower: float
    upper: float
    p: float


@dataclass(frozen=True, slots=True)
class FactorialEffects:
    """Every effect of a factorial: index by position or by name ("A", "B", "AB"), or iterate."""

    effects: tuple[FactorialEffect, ...]

    def __iter__(self) -> Iterator[FactorialEffect]:
        """Iterate over the effects: mains first, then interactions."""
        return iter(self.effects)

    def __len__(self) -> int:
        """Return how many effects there are."""
        return len(self.effects)

    def __getitem__(self, key: int | str) -> FactorialEffect:
        """Return an effect by position or name; KeyError names the effects there are."""
        if isinstance(key, int):
            return self.effects[key]
        for effect in self.effects:
            if effect.name == key:
                return effect
        raise KeyError(f"effect {key!r}: there are {[e.name for e in self.effects]}")


@dataclass(frozen=True, slots=True)
class PooledNoninferiority:
    """Rao-Scott pooled non-inferiority: one table of effective, not integer, counts.

    `deff` is the design effect; `wins`, `losses` and `n` are raw counts divided by it.
    """

    deff: float
    wins: float
    losses: float
    n: float
    estimate: float
    z: float
    p: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class ExcessDiscordance:
    """Discordance between arms beyond the replay noise within them (two replays of each).

    `excess` estimates mean (p_candidate - p_control)^2; `p` is the exact test on the
    `split_cases` in which two of the four answers were right.
    """

    cross: float
    within_control: float
    within_candidate: float
    excess: float
    split_cases: int
    same_arm_cases: int
    p: float


@dataclass(frozen=True, slots=True)
class EProcess:
    """An always-valid test: reject, at any stop, once an e-value reaches 1/alpha.

    `e_values[i]` is the evidence after case i + 1; `rejected_at` counts cases, None if never.
    """

    e_values: tuple[float, ...]
    threshold: float
    rejected_at: int | None

    @property
    def e_value(self) -> float:
        """The evidence after the last case; 1 before any case."""
        return self.e_values[-1] if self.e_values else 1.0

    @property
    def p(self) -> float:
        """Always-valid p-value: one over the largest evidence so far, at most 1."""
        return 1.0 / max(1.0, *self.e_values) if self.e_values else 1.0
