"""An arm's figures against the control's, repeat by repeat. Pure: numbers in, frozen values out.

One repeat is one launch of each of the two arms: two cells of one launch share what that launch
happened to get (memory layout, clock, compiled code), so they are averaged first. The interval is
a studentized bootstrap of the mean log ratio over repeats (Efron & Tibshirani 1993, chapter 12),
simultaneous (Bonferroni) over the arms and levels in which the figure is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from evalharness.speed.figures import TOKENS_PER_S, CellFigures
from evalharness.stats import BootstrapInterval, cluster_bootstrap

Claim = Literal["faster", "slower", "none"]
ALPHA = 0.05
RESAMPLES = 20_000
# Fewer launches leave too few different resamples to studentize: see docs/speed.md.
MIN_REPEATS = 6
NOISY = "the A/A launch differs from the control here by itself"


@dataclass(frozen=True, slots=True)
class Pair:
    """The two cells of one replay. `unit` names the pair of launches they ran in.

    doubt: why nothing may be claimed from them though they have figures, "" where nothing is wrong.
    """

    place: str
    unit: tuple[int, int, int]
    control: CellFigures
    arm: CellFigures
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """What the claims of one figure share.

    planned: repeats that the plan declares; comparisons: arms times levels; seed: of resampling.
    """

    planned: int
    comparisons: int
    seed: int

    @property
    def confidence(self) -> float:
        """Confidence of each interval, so that all of them hold together at 95%."""
        return 1 - ALPHA / max(1, self.comparisons)


@dataclass(frozen=True, slots=True)
class Limits:
    """An estimate and its interval; the limits are None where no interval can be given."""

    estimate: float
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class Contrast:
    """One figure of one arm against the control at one concurrency.

    control_mean, arm_mean: over repeats, in the figure's unit. ratio: arm over control (a ratio of
    times below 1, or of rates above 1, is faster). saved_ms: control minus arm, None for a rate.
    `claim` is "none" unless the whole interval lies on one side of 1; `reason` says why.
    """

    figure: str
    repeats: int
    control_mean: float | None
    arm_mean: float | None
    ratio: Limits | None
    saved_ms: Limits | None
    claim: Claim
    reason: str


def compare(pairs: Sequence[Pair], figure: str, family: Family) -> Contrast:
    """Return the contrast of one figure over the pairs of one arm and level."""
    problems = [text for pair in pairs if (text := _lacks(pair, figure))]
    doubts = [f"{pair.place}: {pair.doubt}" for pair in pairs if pair.doubt]
    sound = [pair for pair in pairs if not _lacks(pair, figure)]
    if not sound:
        reason = problems[0] if problems else "no repeat has both arms"
        return Contrast(figure, 0, None, None, None, None, "none", reason)
    units: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
    for pair in sound:
        values = (pair.control.values[figure], pair.arm.values[figure])
        units.setdefault(pair.unit, []).append(values)
    control = [_mean([one for one, _ in found]) for found in units.values()]
    arm = [_mean([other for _, other in found]) for found in units.values()]
    logs = [_mean([math.log(b / a) for a, b in found]) for found in units.values()]
    ratio = _limits(logs, family, math.exp)
    saved = [a - b for a, b in zip(control, arm, strict=True)]
    withheld = _withheld(len(units), cells=len(pairs), problems=[*problems, *doubts], family=family)
    claim, reason = _claim(ratio, rate=figure == TOKENS_PER_S)
    return Contrast(
        figure=figure,
        repeats=len(units),
        control_mean=_mean(control),
        arm_mean=_mean(arm),
        ratio=ratio,
        saved_ms=None if figure == TOKENS_PER_S else _limits(saved, family, float),
        claim="none" if withheld else claim,
        reason=withheld or reason,
    )


def after_aa(found: Mapping[str, Contrast], aa: Mapping[str, Contrast]) -> dict[str, Contrast]:
    """Withhold every claim in a cell in which the A/A launch differs from the control itself."""
    kept = {}
    for figure, one in found.items():
        noise = aa.get(figure)
        if noise is not None and noise.claim != "none" and one.claim != "none":
            one = replace(one, claim="none", reason=NOISY)
        kept[figure] = one
    return kept


def _lacks(pair: Pair, figure: str) -> str:
    for name, side in (("control", pair.control), ("arm", pair.arm)):
        if figure not in side.values:
            return f"{pair.place}, {name}: {side.missing.get(figure, 'no such figure')}"
    return ""


def _withheld(units: int, *, cells: int, problems: Sequence[str], family: Family) -> str:
    """Return why nothing may be claimed whatever the interval, "" if it may."""
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return f"{problems[0]}{more}"
    if cells != family.planned:
        there = "1 repeat is" if cells == 1 else f"{cells} repeats are"
        return f"{there} there, the plan declares {family.planned}"
    if units < MIN_REPEATS:
        shared = f" ({cells} repeats share them)" if cells > units else ""
        launches = "1 launch" if units == 1 else f"{units} launches"
        return (
            f"{launches} of each arm{shared}: an interval needs {MIN_REPEATS} "
            "(plan.speed_repeats, with order alternating or blocked)"
        )
    return ""


def _claim(ratio: Limits, *, rate: bool) -> tuple[Claim, str]:
    if ratio.lower is None or ratio.upper is None:
        return "none", "no interval can be given"
    if ratio.lower <= 1 <= ratio.upper:
        return "none", "the interval spans 1"
    higher = ratio.lower > 1
    return ("faster" if higher == rate else "slower"), "the interval excludes 1"


def _limits(values: Sequence[float], family: Family, back: Callable[[float], float]) -> Limits:
    """Return mean and interval of the repeats' values, each passed through `back`."""
    if len(values) < 2:
        return Limits(back(values[0]), None, None)
    found: BootstrapInterval = cluster_bootstrap(
        values, [1.0] * len(values), RESAMPLES, family.seed, family.confidence
    )
    finite = math.isfinite(found.lower) and math.isfinite(found.upper)
    if not finite:
        return Limits(back(found.estimate), None, None)
    return Limits(back(found.estimate), back(found.lower), back(found.upper))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
