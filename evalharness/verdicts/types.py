"""What the verdicts take and give: frozen values, no file access.

In: a `PlanFacts`, one `OutcomeTable` per suite x mode x concurrency, one `NllTable` per
mode x concurrency. Out: a `RunVerdict`. Units: see `inputs` and `cell_types`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evalharness.stats import FactorialEffect
from evalharness.verdicts.cell_types import (
    CellVerdict,
    Discordance,
    MeanContrast,
    NllCellVerdict,
    NllSummary,
    RateContrast,
    TokenExtreme,
    Underlying,
    Verdict,
)
from evalharness.verdicts.inputs import (
    CORRECT,
    UNOBSERVED,
    WRONG,
    BoolCube,
    FloatCube,
    NllMargin,
    NllTable,
    OutcomeCube,
    OutcomeTable,
    PlanArm,
    PlanFacts,
)

__all__ = [
    "CORRECT",
    "UNOBSERVED",
    "WRONG",
    "AaCheck",
    "ArmVerdict",
    "BoolCube",
    "CellVerdict",
    "Discordance",
    "EffectsTable",
    "FloatCube",
    "MeanContrast",
    "NllCellVerdict",
    "NllMargin",
    "NllSummary",
    "NllTable",
    "OutcomeCube",
    "OutcomeTable",
    "PlanArm",
    "PlanFacts",
    "PooledVerdict",
    "RateContrast",
    "RunVerdict",
    "SuiteReach",
    "TokenExtreme",
    "Underlying",
    "Verdict",
]


@dataclass(frozen=True, slots=True)
class PooledVerdict:
    """An arm pooled over concurrency in one suite and mode (Rao-Scott); a summary, no gate."""

    arm: str
    suite: str
    mode: str
    levels: tuple[int, ...]
    deff: float
    n_effective: float
    estimate: float
    lower: float
    upper: float
    margin: float | None
    p: float | None


@dataclass(frozen=True, slots=True)
class EffectsTable:
    """Factorial effects in one suite (or NLL mode) and concurrency.

    `effects` is empty where they are not estimable; `reason` then says why. Intervals are
    simultaneous at 1 - 2 alpha. `unit` is "share of cases" or "nats per token". Effect names
    are letters; `factors` gives the factor of each letter, in order.
    """

    suite: str
    mode: str
    concurrency: int
    unit: str
    factors: tuple[str, ...]
    cases: int
    effects: tuple[FactorialEffect, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class AaCheck:
    """The A/A launch against the control in one cell, and what follows.

    `failed` True: it shows a difference, or its tail exceeds; nobody is admitted there.
    `incomplete` True: the launch is missing, or its unobserved cases could make it fail.
    """

    suite: str
    mode: str
    concurrency: int
    table: Discordance | None
    nll: NllSummary | None
    p: float
    failed: bool
    incomplete: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ArmVerdict:
    """The verdict of one arm: every gate cell must pass, then the arms' multiplicity.

    `p` is the largest p of its gate cells, `p_adjusted` after Holm or the declared sequence.
    """

    arm: str
    levels: tuple[tuple[str, str], ...]
    verdict: Verdict
    underlying: Underlying
    reason: str
    notes: tuple[str, ...]
    p: float
    p_adjusted: float
    cells: tuple[CellVerdict, ...]
    nll_cells: tuple[NllCellVerdict, ...]


@dataclass(frozen=True, slots=True)
class SuiteReach:
    """What a suite could have admitted at best: with every case concordant, and with 80%
    power at 5% discordance. Fractions of cases; the reader's "what this run cannot say"."""

    suite: str
    mode: str
    cases: int
    margin: float | None
    smallest_if_concordant: float
    smallest_at_power_80: float


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """Everything the report says. `exit_code` is that of `evalharness noninferiority`."""

    alpha: float
    sequence: Literal["holm"] | tuple[str, ...]
    exploratory: tuple[str, ...]
    arms: tuple[ArmVerdict, ...]
    aa: tuple[AaCheck, ...]
    effects: tuple[EffectsTable, ...]
    pooled: tuple[PooledVerdict, ...]
    reach: tuple[SuiteReach, ...]
    exit_code: int
