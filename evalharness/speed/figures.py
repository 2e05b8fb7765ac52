"""One cell's responses become its figures. The first C requests are the warm-up: never counted.

A figure that cannot be taken is missing with the reason, and the others stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evalharness.chat import Unobserved
from evalharness.speed.answer import Answer, read_answer
from evalharness.speed.score import forced_length, length_problem
from evalharness.speed.steps import PureSteps, Stream, pure_steps, stream_of
from evalharness.types import Response

TOKENS_PER_S = "output_tokens_per_s"
STEP = "step_ms"
TTFT = "ttft_ms"
E2E = "e2e_ms"
FIGURES = (TOKENS_PER_S, STEP, TTFT, E2E)


@dataclass(frozen=True, slots=True)
class CellFigures:
    """The figures of one cell: `values` has those that could be taken, `missing` why not.

    output_tokens_per_s: tokens of the measured requests over the time from the first of them
    being sent to the last one's end. step_ms: inter-token time in pure decode (`PureSteps`).
    ttft_ms and e2e_ms: means over the measured requests. `pure_tokens` is what step_ms rests on.
    """

    requests: int
    warmup: int
    pure_tokens: int = 0
    values: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A response with what it says, and when it was sent."""

    response: Response
    answer: Answer | Unobserved


def without_figures(reason: str) -> CellFigures:
    """Return the figures of a cell of which none can be taken."""
    return CellFigures(0, 0, missing=dict.fromkeys(FIGURES, reason))


def cell_figures(responses: Sequence[Response], concurrency: int) -> CellFigures:
    """Return the figures of one complete cell; `responses` are all of it, in any order."""
    seen = [_Seen(one, read_answer(one)) for one in sorted(responses, key=lambda r: r.sent_ns)]
    warmup, measured = seen[:concurrency], seen[concurrency:]
    if not measured:
        return without_figures(
            f"{len(seen)} requests at C{concurrency}: all of them belong to the warm-up"
        )
    failed = [one.answer.reason for one in measured if isinstance(one.answer, Unobserved)]
    if failed:
        reason = f"{len(failed)} of {len(measured)} requests failed: {failed[0]}"
        return CellFigures(len(measured), len(warmup), missing=dict.fromkeys(FIGURES, reason))
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    steps = PureSteps(0, None)
    for names, reason in _faults(measured):
        missing |= {name: reason for name in names if name not in missing}
    if STEP not in missing:
        steps = pure_steps(_streams(seen, warmup=len(warmup)), concurrency)
        if steps.step_ms is None:
            missing[STEP] = f"in no step were all {concurrency} streams decoding"
    for name, value in _values(measured, steps).items():
        if value is None:
            missing.setdefault(name, "no time passed by the client's clock")
        elif name not in missing:
            values[name] = value
    return CellFigures(len(measured), len(warmup), steps.tokens, values, missing)


def _faults(measured: Sequence[_Seen]) -> list[tuple[tuple[str, ...], str]]:
    """Return (figures, why they cannot be taken) for each thing that some reply lacks."""
    answers = [(one.answer, one.response) for one in measured if isinstance(one.answer, Answer)]
    count = len(answers)
    lengths = [length_problem(answer, forced_length(r)) for answer, r in answers]
    other = [problem for problem in lengths if problem]
    uncounted = sum(answer.tokens is None for answer, _ in answers)
    whole = sum(not answer.streamed or not r.chunk_ns for answer, r in answers)
    unknown = sum(answer.streamed and not _timed(answer, r) for answer, r in answers)
    found: list[tuple[tuple[str, ...], str]] = []
    if uncounted:
        found.append(((TOKENS_PER_S,), f"{uncounted} of {count} replies have no usage"))
    if other:
        found.append(
            ((TOKENS_PER_S, E2E), f"{len(other)} of {count} replies lack the forced length: "
             f"{other[0]}")
        )  # fmt: skip
    if whole:
        found.append(((STEP, TTFT), f"{whole} of {count} replies were not streamed"))
    if unknown:
        reason = f"{unknown} of {count} streams do not say how many tokens an event carries"
        found.append(((STEP, TTFT), reason))
    return found


def _timed(answer: Answer, response: Response) -> bool:
    return bool(answer.events) and answer.events[-1] < len(response.chunk_ns)


def _streams(seen: Sequence[_Seen], *, warmup: int) -> list[Stream]:
    """Return every stream whose tokens can be timed.

    One that cannot leaves fewer than C decoding in its steps, so that none of them counts.
    """
    return [
        stream_of(
            [one.response.chunk_ns[event] for event in one.answer.events],
            one.answer.counts,
            measured=place >= warmup,
        )
        for place, one in enumerate(seen)
        if isinstance(one.answer, Answer) and _timed(one.answer, one.response)
    ]


def _values(measured: Sequence[_Seen], steps: PureSteps) -> dict[str, float | None]:
    responses = [one.response for one in measured]
    answers = [one.answer for one in measured if isinstance(one.answer, Answer)]
    ends = [r.done_ns or r.sent_ns for r in responses]  # a reply that was read whole has an end
    span_ns = max(ends) - min(r.sent_ns for r in responses)
    tokens = sum(answer.tokens or 0 for answer in answers)
    firsts = [
        r.chunk_ns[answer.events[0]] - r.sent_ns
        for r, answer in zip(responses, answers, strict=True)
        if _timed(answer, r)
    ]
    whole = [end - r.sent_ns for end, r in zip(ends, responses, strict=True)]
    return {
        TOKENS_PER_S: tokens / (span_ns / 1e9) if span_ns > 0 else None,
        STEP: steps.step_ms,
        TTFT: _mean_ms(firsts),
        E2E: _mean_ms(whole),
    }


def _mean_ms(times_ns: Sequence[int]) -> float | None:
    return sum(times_ns) / len(times_ns) / 1e6 if times_ns else None
