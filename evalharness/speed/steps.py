"""Which inter-token times were steps in which all C streams were decoding.

The step behind an arrival lies between it and the arrival before it on the same stream. It counts
when C streams (this one included) had their first token before that interval began and their last
not before it ended: then no slot was free, so no prefill can have shared the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
# Share of the tokens' times that is left out at each end.
CUT = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """One stream's arrivals: `at` increasing ns of one clock, `tokens[i]` came at `at[i]`.

    measured: False for a stream that only fills the batch (the warm-up).
    """

    at: Times
    tokens: Times
    measured: bool


@dataclass(frozen=True, slots=True)
class PureSteps:
    """What the steps that count say: tokens made in them, and their inter-token time.

    step_ms: mean of the middle 80% of the tokens' times, so that a stall of the machine (which
    end-to-end times and rates have in full) does not pass for a slower step; None without a step.
    """

    tokens: int
    step_ms: float | None


def stream_of(at: Sequence[int], counts: Sequence[int], *, measured: bool) -> Stream:
    """Return the stream; tokens that arrived at one moment stand together."""
    moments, place = np.unique(np.asarray(at, dtype=np.int64), return_inverse=True)
    tokens = np.bincount(place, weights=counts, minlength=len(moments)).astype(np.int64)
    return Stream(moments, tokens, measured)


def pure_steps(streams: Sequence[Stream], concurrency: int) -> PureSteps:
    """Sum the measured streams' steps in which `concurrency` streams were decoding."""
    known = [stream for stream in streams if len(stream.at)]
    first = np.array([stream.at[0] for stream in known], dtype=np.int64)
    last = np.array([stream.at[-1] for stream in known], dtype=np.int64)
    times: list[NDArray[np.float64]] = []
    tokens: list[Times] = []
    for stream in known:
        if not stream.measured:
            continue
        begin, end = stream.at[:-1], stream.at[1:]
        decoding = (first <= begin[:, None]) & (last >= end[:, None])
        pure = decoding.sum(axis=1) == concurrency
        made = stream.tokens[1:][pure]
        times.append((end - begin)[pure] / made)
        tokens.append(made)
    total = int(sum(made.sum() for made in tokens))
    if not total:
        return PureSteps(0, None)
    mean_ns = trimmed_mean(np.concatenate(times), np.concatenate(tokens), cut=CUT)
    return PureSteps(total, mean_ns / 1e6)


def trimmed_mean(values: NDArray[np.float64], weights: Times, *, cut: float) -> float:
    """Return the weighted mean without the lowest and the highest `cut` of the weight."""
    order = np.argsort(values, kind="stable")
    upper = np.cumsum(weights[order], dtype=np.float64)
    limits = (cut * upper[-1], (1 - cut) * upper[-1])
    kept = np.clip(upper, *limits) - np.clip(upper - weights[order], *limits)
    return float(values[order] @ kept / kept.sum())
