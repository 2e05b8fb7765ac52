"""Is a trace decode at C and nothing else? Three witnesses; one that objects refuses the trace.

annotations  vLLM marks every step of a profiled worker with its requests in prefill ("context")
             and in decode. A step with prefill in it, or with another number of requests in
             decode than C, refuses the trace.
counters     the server's own count of prompt tokens may not move, and C requests must run, from
             before the profile starts until after it stops: nobody else's prefill either.
streams      all C streams had made their set number of outputs before the profile began, and
             none ended before it stopped.

The streams alone cannot see another client's prefill, so one of the first two must have spoken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evalharness.trace.chrome import Step, Trace


@dataclass(frozen=True, slots=True)
class Counters:
    """The server's own figures at one moment; None where it does not give them."""

    running: int | None
    prompt_tokens: int | None


@dataclass(frozen=True, slots=True)
class Purity:
    """pure: True (shown), False (refused), None (nothing shown). `problems` refuse it."""

    pure: bool | None
    witnesses: tuple[str, ...]
    problems: tuple[str, ...]
    steps: int
    step_kinds: tuple[tuple[str, int], ...]


def judge(
    traces: Sequence[Trace],
    *,
    concurrency: int | None,
    before: Counters | None = None,
    after: Counters | None = None,
) -> Purity:
    """Judge the trace files of one profile (one per rank).

    concurrency: streams that were driven; None (a file of unknown origin) checks prefill alone.
    """
    witnesses: list[str] = []
    problems: list[str] = []
    marked = [trace for trace in traces if trace.steps]
    if marked and len(marked) == len(traces):
        witnesses.append("annotations")
    for trace in marked:
        problems += _step_problems(trace, concurrency)
    if before is not None and after is not None:
        said, objections = _counter_problems(before, after, concurrency)
        witnesses += ["counters"] if said else []
        problems += objections
    pure = False if problems else True if witnesses else None
    steps = [step for trace in marked[:1] for step in trace.steps if not _empty(step)]
    kinds = Counter(_kind(step) for step in steps)
    return Purity(pure, tuple(witnesses), tuple(problems), len(steps), tuple(sorted(kinds.items())))


def _empty(step: Step) -> bool:
    return step.context_requests == 0 and step.generation_requests == 0


def _kind(step: Step) -> str:
    return f"{step.context_requests} in prefill, {step.generation_requests} in decode"


def _step_problems(trace: Trace, concurrency: int | None) -> list[str]:
    problems = []
    prefill = [step for step in trace.steps if step.context_requests]
    if prefill:
        tokens = sum(step.context_tokens for step in prefill)
        problems.append(
            f"{trace.name}: {len(prefill)} of {len(trace.steps)} steps had prefill in them "
            f"({tokens} prompt tokens)"
        )
    other = Counter(
        step.generation_requests
        for step in trace.steps
        if concurrency is not None and not _empty(step) and step.generation_requests != concurrency
    )
    if other:
        told = ", ".join(f"{count} steps with {number}" for number, count in sorted(other.items()))
        problems.append(f"{trace.name}: {told} requests in decode, expected {concurrency}")
    return problems


def _counter_problems(
    before: Counters, after: Counters, concurrency: int | None
) -> tuple[bool, list[str]]:
    problems = []
    if before.prompt_tokens is not None and after.prompt_tokens is not None:
        moved = after.prompt_tokens - before.prompt_tokens
        if moved:
            problems.append(
                f"the server took {moved} prompt tokens while it was profiled: another client's "
                "prefill is in the trace; nobody else may use the server"
            )
    for moment, found in (("before", before), ("after", after)):
        if None not in (found.running, concurrency) and found.running != concurrency:
            problems.append(
                f"{found.running} requests ran on the server {moment} the profile, "
                f"expected {concurrency}"
            )
    spoke = None not in (before.prompt_tokens, after.prompt_tokens, before.running)
    return spoke, problems
