"""Small plans and tables, built by counts: so many wins, losses and unobserved cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalharness.verdicts.types import (
    UNOBSERVED,
    NllMargin,
    NllTable,
    OutcomeTable,
    PlanArm,
    PlanFacts,
)

LEVELS = {
    "control": (("hc", "off"), ("moe", "off")),
    "hc": (("hc", "on"), ("moe", "off")),
    "moe": (("hc", "off"), ("moe", "on")),
    "hc+moe": (("hc", "on"), ("moe", "on")),
    "aa": (("hc", "off"), ("moe", "off")),
}
MANIFEST = "m" * 64


def plan(*, arms: tuple[str, ...] = ("hc",), **changes: Any) -> PlanFacts:
    """Return a declared plan: bfcl at 10 points, C1, alpha .025, with A/A."""
    base = PlanFacts(
        declared=True,
        changed=(),
        alpha=0.025,
        margins=(("bfcl", 0.10),),
        nll_margins=(),
        gate_concurrency=(1,),
        sequence="holm",
        arms=tuple(PlanArm(name, LEVELS[name]) for name in ("control", *arms, "aa")),
        factors=(("hc", ("off", "on")), ("moe", ("off", "on"))),
        control="control",
        aa="aa",
        replays=1,
        suites=(("bfcl", "tools"),),
        seed=7,
    )
    return replace(base, **changes)


def column(wins: int, losses: int, *, n: int, right: int) -> NDArray[np.int8]:
    """Candidate outcomes against `control_column`: losses first, wins last."""
    out = control_column(n=n, right=right)
    out[:losses] = 0
    out[n - wins :] = 1
    return out


def control_column(*, n: int, right: int) -> NDArray[np.int8]:
    """The first `right` cases correct, the rest wrong."""
    return (np.arange(n) < right).astype(np.int8)


def table(
    arms: dict[str, tuple[int, int]],
    *,
    n: int = 64,
    right: int = 54,
    concurrency: int = 1,
    suite: str = "bfcl",
    mode: str = "tools",
    **changes: Any,
) -> OutcomeTable:
    """Return a table in which each arm has the given (wins, losses) against the control."""
    columns = {"control": (0, 0), **arms}
    cube = np.stack([column(w, lost, n=n, right=right) for w, lost in columns.values()])
    base = OutcomeTable(
        suite=suite,
        mode=mode,
        concurrency=concurrency,
        manifest=MANIFEST,
        scorer="official/1",
        arms=tuple(columns),
        case_ids=tuple(f"{suite}-{i:04d}" for i in range(n)),
        outcomes=cube[:, None, :],
    )
    return replace(base, **changes)


def hide(rows: OutcomeTable, arm: str, cases: slice) -> OutcomeTable:
    """Return the table with some outcomes of an arm unobserved."""
    cube = rows.outcomes.copy()
    cube[rows.arms.index(arm), :, cases] = UNOBSERVED
    return replace(rows, outcomes=cube)


NLL_MARGIN = NllMargin("decode", nats_per_token=0.005, tail_nats=0.5, tail_share=0.002)


def nll_plan(**changes: Any) -> PlanFacts:
    """Return a plan that gates NLL in decode alone."""
    values: dict[str, Any] = {"margins": (), "suites": (), "nll_margins": (NLL_MARGIN,)}
    return plan(**{**values, **changes})


def nll_table(
    shifts: dict[str, NDArray[np.float64]], *, cases: int = 80, tokens: int = 46, **changes: Any
) -> NllTable:
    """Return a table whose arms' log-probabilities are the control's plus a shift per token."""
    rng = np.random.default_rng(40)
    base = -rng.gamma(0.5, 1.0, size=cases * tokens)
    cube = np.stack([base, *(base + shift for shift in shifts.values())])[:, None, :]
    made = NllTable(
        mode="decode",
        concurrency=1,
        manifest=MANIFEST,
        scorer="raw/1",
        arms=("control", *shifts),
        case_ids=tuple(f"nll-{i:03d}" for i in range(cases)),
        sizes=np.full(cases, tokens),
        token_ids=np.arange(cases * tokens) % 977,
        logprobs=cube,
        observed=np.ones((len(shifts) + 1, 1, cases), dtype=np.bool_),
        pure=np.ones((len(shifts) + 1, 1, cases * tokens), dtype=np.bool_),
    )
    return replace(made, **changes)


def noise(
    seed: int, *, cases: int = 80, tokens: int = 46, size: float = 0.005
) -> NDArray[np.float64]:
    """Return small independent shifts, as a server's own noise makes them."""
    return np.random.default_rng(seed).normal(0, size, cases * tokens)
