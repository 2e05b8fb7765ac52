"""One arm's NLL against control in one mode and concurrency, before it is judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from evalharness.verdicts.cell_types import NllSummary
from evalharness.verdicts.inputs import NllMargin, NllTable
from evalharness.verdicts.nll_tail import TailTest

# The mean has no trustworthy interval with fewer cases (rare spikes; simulated).
MIN_CASES = 60


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredNll:
    """An NLL contrast before multiplicity. `refused` says why the mean gives no p."""

    arm: str
    table: NllTable = field(repr=False)
    margin: NllMargin | None
    gate: bool
    summary: NllSummary | None
    p_mean: float
    p_tail: float
    p_harm: float
    tail: TailTest | None
    refused: str
    unobserved: tuple[str, ...]
