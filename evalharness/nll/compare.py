"""The numbers of one contrast of two replays: mean, tail, quantiles, maximum, perplexity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evalharness.errors import ManifestError
from evalharness.nll.deltas import Excluded, Summary, summarise, write_deltas
from evalharness.stats import BootstrapInterval, cluster_bootstrap

RESAMPLES = 10_000
CONFIDENCE = 0.95
# The mean has no trustworthy interval with fewer cases: what the verdicts ask for as well.
MIN_CASES = 60


@dataclass(frozen=True, slots=True)
class Comparison:
    """Candidate minus control, in nats per token; intervals are studentized, cluster = case.

    shares: threshold -> interval of the share of tokens with |delta| above it.
    """

    summary: Summary
    excluded: tuple[Excluded, ...]
    token_mean: BootstrapInterval
    case_mean: BootstrapInterval
    shares: Mapping[float, BootstrapInterval]


def compare(
    control: Path,
    candidate: Path,
    deltas: Path,
    *,
    thresholds: Sequence[float],
    pure_only: bool,
    seed: int,
) -> Comparison:
    """Write the deltas and return the comparison; ManifestError where fewer than 2 cases join."""
    for path in (control, candidate):
        if not path.is_file():
            raise ManifestError(f"{path}: not found; expected rows of `evalharness nll replay`")
    _, excluded = write_deltas(control, candidate, deltas)
    summary = summarise(deltas, thresholds=thresholds, pure_only=pure_only)
    used = summary.sizes > 0
    if np.count_nonzero(used) < 2:
        reasons = "; ".join(f"{one.case_id}: {one.reason}" for one in excluded[:5])
        raise ManifestError(
            f"{control} and {candidate}: {np.count_nonzero(used)} cases with usable tokens, "
            f"expected 2 or more ({reasons or 'no token was pure'})"
        )
    sums, sizes = summary.sums[used], summary.sizes[used]
    ones = np.ones(len(sums))
    return Comparison(
        summary=summary,
        excluded=tuple(excluded),
        token_mean=cluster_bootstrap(sums, sizes, RESAMPLES, seed, CONFIDENCE),
        case_mean=cluster_bootstrap(sums / sizes, ones, RESAMPLES, seed, CONFIDENCE),
        shares={
            threshold: cluster_bootstrap(
                summary.exceed[used, t].astype(float), sizes, RESAMPLES, seed, CONFIDENCE
            )
            for t, threshold in enumerate(thresholds)
        },
    )


def render(found: Comparison) -> str:
    """Return the comparison as lines of text."""
    summary = found.summary
    cases = int(np.count_nonzero(summary.sizes))
    lines = [
        f"{cases} cases, {int(summary.sizes.sum())} tokens, {summary.nulls} null or clamped, "
        f"{len(found.excluded)} cases excluded",
        f"mean delta per token  {_mean(found.token_mean, cases)} nats (candidate minus control)",
        f"mean delta per case   {_mean(found.case_mean, cases)} nats",
    ]
    if cases < MIN_CASES:
        lines.append(f"no interval of the mean: {cases} cases, a mean NLL needs {MIN_CASES}")
    lines += [f"share of |delta| > {t:g}  {_interval(one)}" for t, one in found.shares.items()]
    lines += [f"quantile {q:g} of delta  {value:+.6g}" for q, value in summary.quantiles.items()]
    lines += _largest(summary)
    lines.append(
        f"perplexity  control {summary.perplexity_control:.6g}, "
        f"candidate {summary.perplexity_candidate:.6g}"
    )
    lines += [f"excluded {one.case_id}: {one.reason}" for one in found.excluded]
    return "\n".join(lines) + "\n"


def _largest(summary: Summary) -> list[str]:
    top = summary.maximum
    if top is None:
        return []
    if top.delta == 0:
        known = " that both sides have" if summary.nulls else ""
        return [f"largest |delta|  none: every token delta{known} is exactly zero"]
    return [
        f"largest |delta|  {top.delta:+.6g} at case {top.case_id}, position {top.position}, "
        f"token id {top.token_id} (a sample extreme: no interval)"
    ]


def _mean(one: BootstrapInterval, cases: int) -> str:
    return _interval(one) if cases >= MIN_CASES else f"{one.estimate:+.6g}"


def _interval(one: BootstrapInterval) -> str:
    """Write estimate and limits; no limits where they have no width, which bounds nothing."""
    if one.lower == one.upper or math.isnan(one.lower):
        return f"{one.estimate:+.6g} (no interval: every case has the same value)"
    return f"{one.estimate:+.6g} [{one.lower:+.6g}, {one.upper:+.6g}]"
