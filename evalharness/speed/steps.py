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
    """Decoding time and tokens of the steps that count, summed over the measured streams."""

    duration_ns: int
    tokens: int

    @property
    def step_ms(self) -> float | None:
        """Mean time a token took on its stream, in ms; None without a step."""
        return self.duration_ns / self.tokens / 1e6 if self.tokens else None


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
    duration_ns = tokens = 0
    for stream in known:
        if not stream.measured:
            continue
        begin, end = stream.at[:-1], stream.at[1:]
        decoding = (first <= begin[:, None]) & (last >= end[:, None])
        pure = decoding.sum(axis=1) == concurrency
        duration_ns += int((end - begin)[pure].sum())
        tokens += int(stream.tokens[1:][pure].sum())
    return PureSteps(duration_ns, tokens)
