"""Stored cells of one or more runs become paired tables: every arm on the same cases.

Joined by identity, never by position. A row that should be there and is not is unobserved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evalharness.errors import StoreError
from evalharness.runs import NLL_SUITE, SPEED_SUITE, Run, StoredCell
from evalharness.stored_rows import CaseNll, CaseScore
from evalharness.types import AA, CellKey
from evalharness.verdicts.types import CORRECT, UNOBSERVED, WRONG, NllTable, OutcomeTable

CODES = {"correct": CORRECT, "wrong": WRONG, "unobserved": UNOBSERVED}
# Start of the reason of a row that a scorer leaves out of the denominator.
EXCLUDED = "excluded:"
TOKENS_DIFFER = "the tokens that came back are not the control's"


@dataclass(frozen=True, slots=True)
class Slot:
    """One replay: which run it lies in and its number there."""

    run: int
    replicate: int


def slots(runs: Sequence[Run]) -> tuple[Slot, ...]:
    """Return every replay of the runs, at least as many as the plan declares.

    A declared replay that was never run is thus unobserved, not forgotten. The repeats of speed
    suites are not among them.
    """
    return _slots(runs, planned=runs[0].plan["replays"], speed=False)


def speed_slots(runs: Sequence[Run]) -> tuple[Slot, ...]:
    """Return every repeat of the runs' speed suites, at least as many as the plan declares."""
    return _slots(runs, planned=speed_repeats(runs[0].plan), speed=True)


def speed_repeats(plan: Mapping[str, Any]) -> int:
    """Return how many launches of each arm run the speed suites by the plan."""
    return int(plan.get("speed_repeats", plan["replays"]))


def _slots(runs: Sequence[Run], *, planned: int, speed: bool) -> tuple[Slot, ...]:
    found = [
        Slot(index, replicate)
        for index, run in enumerate(runs)
        for replicate in sorted(
            {key.replicate for key in run.cells if _is_speed(run.plan, key.suite) == speed}
        )
    ]
    for replicate in range(planned):
        if len(found) < planned and Slot(0, replicate) not in found:
            found.append(Slot(0, replicate))
    return tuple(found)


def _is_speed(plan: Mapping[str, Any], entry: str) -> bool:
    return bool(plan["suites"][entry]["suite"] == SPEED_SUITE)


def arm_names(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Control first, then the A/A arm if there is one, then the candidates in plan order."""
    names = [arm["name"] for arm in plan["arms"] if arm["name"] not in (plan["control"], AA)]
    return (plan["control"], *((AA,) if plan["aa"] else ()), *names)


def suite_modes(plan: Mapping[str, Any], *, nll: bool) -> list[tuple[str, str]]:
    """Return (suite entry, mode) pairs of the plan: the NLL ones, or those with verdicts."""
    return [
        (name, mode)
        for name, suite in plan["suites"].items()
        if (suite["suite"] == NLL_SUITE) == nll and not _is_speed(plan, name)
        for mode in suite["modes"]
    ]


def speed_modes(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (suite entry, mode) pairs of the plan's speed suites."""
    return [
        (name, mode)
        for name, suite in plan["suites"].items()
        if _is_speed(plan, name)
        for mode in suite["modes"]
    ]


def nll_label(suite: str, mode: str) -> str:
    """Return the name of an NLL mode in tables: the mode, with its entry if not `nll` itself."""
    return mode if suite == NLL_SUITE else f"{suite}.{mode}"


def case_ids(runs: Sequence[Run], suite: str, mode: str) -> tuple[str, ...]:
    """Return the ids of a suite's cases: the run's manifest's, else those seen in any arm.

    Without a manifest, a case that no arm has a row for cannot be named; a stand-in counts for
    it, unobserved. Raises StoreError where rows are there that the plan does not have.
    """
    planned = int(runs[0].plan["suites"][suite]["cases"])
    seen: set[str] = set()
    for run in runs:
        for key, cell in run.cells.items():
            if (key.suite, key.mode) == (suite, mode):
                seen |= cell.case_ids
    named = runs[0].case_ids.get(suite)
    foreign = seen - set(named) if named is not None else set()
    if foreign or len(seen) > planned:
        raise StoreError(
            f"{runs[0].path}: {suite} ({mode}) has rows for {len(seen)} cases, the plan has "
            f"{planned}; not in the manifest: {', '.join(sorted(foreign)[:3]) or 'unknown'}; "
            "rows of another run were mixed in; restore the run"
        )
    if named is not None:
        return named
    missing = [f"(no row in any arm, {i + 1})" for i in range(planned - len(seen))]
    return (*sorted(seen), *missing)


def find_cell(
    runs: Sequence[Run], slot: Slot, *, where: tuple[str, str, int], arm: str
) -> StoredCell | None:
    """Return the stored cell of an arm at (suite, mode, concurrency) in one replay.

    A cell whose cases were dealt out to shards is returned joined.
    """
    suite, mode, concurrency = where
    key, run = CellKey(arm, suite, mode, concurrency, slot.replicate), runs[slot.run]
    return run.joined.get(key) or run.cells.get(key)


def outcome_tables(runs: Sequence[Run]) -> list[OutcomeTable]:
    """One paired table per verdict suite, mode and concurrency."""
    plan = runs[0].plan
    return [
        _outcome_table(runs, (suite, mode, concurrency))
        for suite, mode in suite_modes(plan, nll=False)
        for concurrency in plan["concurrency"]
    ]


def _outcome_table(runs: Sequence[Run], where: tuple[str, str, int]) -> OutcomeTable:
    suite, mode, concurrency = where
    arms, ids = arm_names(runs[0].plan), _counted_ids(runs, where)
    shape = (len(arms), len(slots(runs)), len(ids))
    outcomes = np.full(shape, UNOBSERVED, dtype=np.int8)
    lengths = np.full(shape, np.nan)
    truncated = np.full(shape, UNOBSERVED, dtype=np.int8)
    for a, r, cell in _cells(runs, where, arms):
        for i, score in _in_order(ids, cell.scores):
            outcomes[a, r, i] = CODES[score.outcome]
            if score.output_tokens is not None:
                lengths[a, r, i] = score.output_tokens
            if score.truncated is not None:
                truncated[a, r, i] = score.truncated
    return OutcomeTable(
        suite=suite,
        mode=mode,
        concurrency=concurrency,
        manifest=runs[0].plan["manifest"]["sha256"],
        scorer=runs[0].scorers[suite],
        arms=arms,
        case_ids=ids,
        outcomes=outcomes,
        lengths=lengths,
        truncated=truncated,
    )


def _counted_ids(runs: Sequence[Run], where: tuple[str, str, int]) -> tuple[str, ...]:
    """Return the cases that count: a scorer may exclude one that no reply can satisfy.

    The reason depends on the case alone, so that a case is excluded in every arm or in none;
    one row that says so is enough.
    """
    arms = arm_names(runs[0].plan)
    excluded = {
        case_id
        for _, _, cell in _cells(runs, where, arms)
        for case_id, score in cell.scores.items()
        if score.reason.startswith(EXCLUDED)
    }
    return tuple(i for i in case_ids(runs, where[0], where[1]) if i not in excluded)


def _cells(
    runs: Sequence[Run], where: tuple[str, str, int], arms: Sequence[str]
) -> Iterator[tuple[int, int, StoredCell]]:
    for a, arm in enumerate(arms):
        for r, slot in enumerate(slots(runs)):
            cell = find_cell(runs, slot, where=where, arm=arm)
            if cell is not None:
                yield a, r, cell


def _in_order(
    ids: Sequence[str], scores: Mapping[str, CaseScore]
) -> Iterator[tuple[int, CaseScore]]:
    for i, case_id in enumerate(ids):
        if case_id in scores:
            yield i, scores[case_id]


def nll_tables(runs: Sequence[Run]) -> list[NllTable]:
    """One table of token log-probabilities per NLL mode and concurrency."""
    plan = runs[0].plan
    return [
        _nll_table(runs, (suite, mode, concurrency))
        for suite, mode in suite_modes(plan, nll=True)
        for concurrency in plan["concurrency"]
    ]


def forced_tokens(
    runs: Sequence[Run], *, suite: str, mode: str, ids: Sequence[str]
) -> list[tuple[int, ...]]:
    """Return each case's forced tokens: the control's, else the first arm's that has them.

    Taken over all levels and replays, so that every table of a mode has the same tokens;
    empty where no arm ever returned the case.
    """
    plan = runs[0].plan
    found: dict[str, tuple[int, ...]] = {}
    for arm in arm_names(plan):
        for concurrency in plan["concurrency"]:
            for slot in slots(runs):
                cell = find_cell(runs, slot, where=(suite, mode, concurrency), arm=arm)
                for case_id, row in cell.nll.items() if cell else ():
                    if row.observed:
                        found.setdefault(case_id, row.token_ids)
    return [found.get(case_id, ()) for case_id in ids]


def _nll_table(runs: Sequence[Run], where: tuple[str, str, int]) -> NllTable:
    suite, mode, concurrency = where
    arms, ids = arm_names(runs[0].plan), case_ids(runs, suite, mode)
    tokens = forced_tokens(runs, suite=suite, mode=mode, ids=ids)
    sizes = np.array([len(case) for case in tokens], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    shape = (len(arms), len(slots(runs)))
    logprobs = np.full((*shape, int(sizes.sum())), np.nan)
    pure = np.zeros((*shape, int(sizes.sum())), dtype=np.bool_)
    observed = np.zeros((*shape, len(ids)), dtype=np.bool_)
    for a, r, cell in _cells(runs, where, arms):
        for i, case_id in enumerate(ids):
            row = cell.nll.get(case_id)
            if row is None or nll_reason(row, tokens[i]):
                continue
            span = slice(int(starts[i]), int(starts[i + 1]))
            observed[a, r, i] = True
            logprobs[a, r, span] = [np.nan if v is None else v for v in row.logprobs]
            pure[a, r, span] = row.pure or False
    return NllTable(
        mode=nll_label(suite, mode),
        concurrency=concurrency,
        manifest=runs[0].plan["manifest"]["sha256"],
        scorer=runs[0].scorers[suite],
        arms=arms,
        case_ids=ids,
        sizes=sizes,
        token_ids=np.array([token for case in tokens for token in case], dtype=np.int64),
        logprobs=logprobs,
        observed=observed,
        pure=pure if mode == "decode" else None,
    )


def nll_reason(row: CaseNll, forced: tuple[int, ...]) -> str:
    """Return why a row does not count, "" if it does: unobserved, or not the forced tokens."""
    if not row.observed:
        return row.reason
    sound = len(row.logprobs) == len(row.token_ids) and len(row.pure) in (0, len(row.token_ids))
    if not sound:
        return "the row's lists have different lengths"
    return "" if row.token_ids == forced else TOKENS_DIFFER
