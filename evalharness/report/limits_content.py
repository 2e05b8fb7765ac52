"""What the answers and tokens themselves leave open: floors, truncation, few tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalharness.noninferiority import Judgement
from evalharness.runs import Run
from evalharness.verdicts.types import CORRECT, NllTable, OutcomeTable

# Above this share of answers cut at the token limit, the limit is part of what was measured.
TRUNCATED_SHARE = 0.2


def content_limits(run: Run, judged: Judgement) -> Iterator[str]:
    """Yield a sentence for each suite whose answers could not show a loss, or were cut off."""
    for tables in _by_suite(judged.tables):
        yield from _floor(tables)
        yield from _truncation(run, tables)
    modes: dict[str, list[NllTable]] = {}
    for table in judged.nll:
        modes.setdefault(table.mode, []).append(table)
    for mode, of_mode in modes.items():
        yield from _tokens(mode, of_mode)


def _by_suite(tables: Sequence[OutcomeTable]) -> list[list[OutcomeTable]]:
    found: dict[tuple[str, str], list[OutcomeTable]] = {}
    for table in tables:
        if table.case_ids:
            found.setdefault((table.suite, table.mode), []).append(table)
    return list(found.values())


def _floor(tables: Sequence[OutcomeTable]) -> Iterator[str]:
    """A loss is a case that the control has right: without one, none can be seen."""
    never = [t.concurrency for t in tables if not bool((t.outcomes[0] == CORRECT).any())]
    if never:
        first = tables[0]
        at = "" if len(never) == len(tables) else f" at {_levels(never)}"
        yield (
            f"{first.suite} ({first.mode}): the control is right on 0 of {len(first.case_ids)} "
            f"cases{at} here: no loss can show."
        )


def _truncation(run: Run, tables: Sequence[OutcomeTable]) -> Iterator[str]:
    shares: dict[str, float] = {}
    first = tables[0]
    for a, arm in enumerate(first.arms):
        marks = [t.truncated[a] for t in tables if t.truncated is not None and t.arms == first.arms]
        cut = sum(int((mark == 1).sum()) for mark in marks)
        known = sum(int((mark >= 0).sum()) for mark in marks)
        if known:
            shares[arm] = cut / known
    if max(shares.values(), default=0.0) <= TRUNCATED_SHARE:
        return
    limit = run.plan["suites"][first.suite]["sampling"]["max_tokens"]
    low, high = min(shares.values()), max(shares.values())
    share = f"{high:.0%}" if f"{low:.0%}" == f"{high:.0%}" else f"{low:.0%} to {high:.0%}"
    yield (
        f"{first.suite} ({first.mode}): {share} of each arm's answers were cut off at {limit} "
        "tokens: what a longer answer would have said is not known."
    )


def _tokens(mode: str, tables: Sequence[NllTable]) -> Iterator[str]:
    first = tables[0]
    cases = len(first.case_ids)
    if not cases:
        return
    size = float(first.sizes.sum()) / cases
    text = f"nll ({mode}): {cases} cases of {size:.3g} tokens each"
    pure = {t.concurrency: _pure(t) for t in tables if t.pure is not None}
    if not pure:
        yield f"{text}; longer continuations are not covered."
        return
    counts = ", ".join(f"{count} at C{level}" for level, count in pure.items())
    none = [level for level, count in pure.items() if count == 0]
    known = f": nothing at {_levels(none)} is known to be pure decode" if none else ""
    yield f"{text}; tokens known to be pure decode in every arm that was run: {counts}{known}."


def _pure(table: NllTable) -> int:
    """Tokens that are pure decode in every arm that has an answer; an arm never run has none."""
    asked = table.observed.any(axis=(1, 2))
    if table.pure is None or not asked.any():
        return 0
    return int(table.pure[asked].all(axis=(0, 1)).sum())


def _levels(levels: Sequence[int]) -> str:
    return ", ".join(f"C{level}" for level in levels)
