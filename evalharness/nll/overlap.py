"""Which tokens were made while all C streams were decoding, as far as a client can know.

The step of token i of a stream lies between the arrival of the token before it and its own. It
counts as pure decode at C when C streams (this one included) had their first token before that
interval began and their last token not before it ended: nobody's prefill, and nobody's absence,
can have shaped the batch. A first token comes from its own prefill and is never pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evalharness.nll.body import BodyError, read_stream
from evalharness.nll.request import DECODE
from evalharness.nll.score import body_text
from evalharness.types import NllRow, Response

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stream:
    """Arrival times of one response's tokens. ns of the client's monotonic clock."""

    sent_ns: int
    done_ns: int
    token_ns: Times


def annotate(
    rows: Sequence[NllRow], responses: Sequence[Response], *, concurrency: int
) -> list[NllRow]:
    """Return the rows of one cell with `in_flight` and `pure` filled from all its responses.

    rows[i] belongs to responses[i]. Prefill rows and rows without arrival times stay as they
    are. `in_flight[i]` counts the requests that were open when token i arrived. Streams of
    unobserved responses count as well: they were in the batch. ValueError on unequal lengths.
    """
    streams = [_stream(response) for response in responses]
    known = [stream for stream in streams if stream is not None and len(stream.token_ns)]
    sent = np.sort([r.sent_ns for r in responses])
    done = np.sort([r.done_ns for r in responses if r.done_ns is not None])
    firsts = np.array([stream.token_ns[0] for stream in known], dtype=np.int64)
    lasts = np.array([stream.token_ns[-1] for stream in known], dtype=np.int64)
    result: list[NllRow] = []
    for row, stream in zip(rows, streams, strict=True):
        if row.mode != DECODE or stream is None or len(stream.token_ns) != len(row.token_ids):
            result.append(row)
            continue
        at = stream.token_ns
        open_now = np.searchsorted(sent, at, "right") - np.searchsorted(done, at, "left")
        pure = _decoding(at, firsts, lasts) == concurrency
        result.append(
            replace(
                row,
                in_flight=tuple(int(n) for n in open_now),
                pure=tuple(bool(one) for one in pure),
            )
        )
    return result


def _decoding(at: Times, firsts: Times, lasts: Times) -> NDArray[np.int64]:
    """Count, per token, the streams past their first and not past their last token."""
    counts = np.zeros(len(at), dtype=np.int64)
    begins = _step_begins(at)
    for i, (begin, end) in enumerate(zip(begins, at, strict=True)):
        if begin >= 0:
            counts[i] = np.count_nonzero((firsts <= begin) & (lasts >= end))
    return counts


def _step_begins(at: Times) -> Times:
    """Arrival of the last token before each one's own chunk; -1 for the first chunk's tokens."""
    chunk_start = np.searchsorted(at, at, "left")
    return np.where(chunk_start > 0, at[np.maximum(chunk_start - 1, 0)], -1)


def _stream(response: Response) -> Stream | None:
    if response.done_ns is None or not response.chunk_ns:
        return None
    try:
        seen = read_stream(body_text(response))
    except (BodyError, ValueError, TypeError, AttributeError):
        return None
    if seen.event and seen.event[-1] >= len(response.chunk_ns):
        return None
    times = np.array([response.chunk_ns[number] for number in seen.event], dtype=np.int64)
    return Stream(response.sent_ns, response.done_ns, times)
