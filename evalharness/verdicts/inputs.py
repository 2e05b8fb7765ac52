"""What the verdicts take: the frozen plan's facts and paired tables, no file access.

Rates and margins of cases are fractions (0.05 = 5 points); log-probabilities are natural.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

CORRECT, WRONG, UNOBSERVED = 1, 0, -1

OutcomeCube = NDArray[np.int8]
FloatCube = NDArray[np.float64]
BoolCube = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class NllMargin:
    """Margins of one NLL mode: mean in nats per token, and the tail against A/A.

    `tail_share` bounds by how much the share of tokens with |delta| > `tail_nats` may exceed
    the A/A launch's share.
    """

    mode: str
    nats_per_token: float
    tail_nats: float
    tail_share: float


@dataclass(frozen=True, slots=True)
class PlanArm:
    """An arm of the plan with its (factor, level) pairs."""

    name: str
    levels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """The frozen plan, as far as the verdicts need it.

    `declared` False: the run had no plan. `changed` lists every way in which what is asked now
    differs from the frozen plan ("margin bfcl: plan 0.05, asked 0.1"); either makes every
    verdict exploratory. `margins` maps "suite" or "suite.mode" to a fraction of cases; a
    suite without a margin is described, not gated. `arms` includes the control and, where
    `aa` is not None, the A/A arm of that name. `suites` are (suite, mode) pairs that the plan
    ran. `sequence` is "holm" or the declared order of candidate arms. `unserved` holds
    (arm, sentence) where a kernel route that the arm's flags ask for never ran: the arm served
    something else than its name says, so it is incomplete, whatever its scores.
    """

    declared: bool
    changed: tuple[str, ...]
    alpha: float
    margins: tuple[tuple[str, float], ...]
    nll_margins: tuple[NllMargin, ...]
    gate_concurrency: tuple[int, ...]
    sequence: Literal["holm"] | tuple[str, ...]
    arms: tuple[PlanArm, ...]
    factors: tuple[tuple[str, tuple[str, ...]], ...]
    control: str
    aa: str | None
    replays: int
    suites: tuple[tuple[str, str], ...]
    seed: int
    unserved: tuple[tuple[str, str], ...] = ()

    @property
    def candidates(self) -> tuple[str, ...]:
        """Names of the arms to be judged, in the plan's order."""
        return tuple(a.name for a in self.arms if a.name not in (self.control, self.aa))

    def margin(self, suite: str, mode: str) -> float | None:
        """Return the margin of a suite's mode, None where none was declared."""
        declared = dict(self.margins)
        return declared.get(f"{suite}.{mode}", declared.get(suite))

    def nll_margin(self, mode: str) -> NllMargin | None:
        """Return the margins of an NLL mode, None where none was declared."""
        return next((m for m in self.nll_margins if m.mode == mode), None)


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeTable:
    """Paired outcomes of one suite x mode x concurrency, every arm on the same cases.

    outcomes: int8, arms x replays x cases: 1 correct, 0 wrong, -1 unobserved (a replay that
        an arm never completed is all -1).
    lengths: generated tokens, float64 of the same shape, NaN where unknown; None: not kept.
    truncated: int8 of the same shape: 1, 0, -1 unknown; None: not kept.
    """

    suite: str
    mode: str
    concurrency: int
    manifest: str
    scorer: str
    arms: tuple[str, ...]
    case_ids: tuple[str, ...]
    outcomes: OutcomeCube
    lengths: FloatCube | None = None
    truncated: OutcomeCube | None = None

    @property
    def replays(self) -> int:
        """How many replays the table holds."""
        return int(self.outcomes.shape[1])

    def of(self, arm: str) -> OutcomeCube:
        """Return the outcomes of `arm`: replays x cases. ValueError if the arm is not here."""
        return np.asarray(self.outcomes[self.arms.index(arm)])


@dataclass(frozen=True, slots=True, eq=False)
class NllTable:
    """Log-probabilities of the same forced tokens under every arm, in one mode and concurrency.

    Tokens of all cases are concatenated in the order of `case_ids`; `sizes[i]` tokens belong
    to case i. logprobs: float64, arms x replays x tokens, NaN for a null or clamped value.
    observed: bool, arms x replays x cases. pure: bool, arms x replays x tokens, where the
    client knows the step was pure decode; None: not applicable.
    """

    mode: str
    concurrency: int
    manifest: str
    scorer: str
    arms: tuple[str, ...]
    case_ids: tuple[str, ...]
    sizes: NDArray[np.int64]
    token_ids: NDArray[np.int64]
    logprobs: FloatCube
    observed: BoolCube
    pure: BoolCube | None = None

    @property
    def replays(self) -> int:
        """How many replays the table holds."""
        return int(self.logprobs.shape[1])
