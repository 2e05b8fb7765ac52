"""What the run cannot say, in sentences: a verdict is worth what its limits leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalharness.noninferiority import Judgement
from evalharness.pairing import speed_modes, speed_repeats
from evalharness.report.filters import counted
from evalharness.report.limits_content import content_limits
from evalharness.runs import Run
from evalharness.speed.contrasts import MIN_REPEATS

# Under this share of C in flight, a cell was not really at its concurrency.
REACHED_SHARE = 0.8


def cannot_say(
    runs: Sequence[Run], judged: Judgement, load: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the sentences, the most important first."""
    return [
        *_reach(judged),
        *content_limits(runs[0], judged),
        *_noise(judged),
        *_levels(runs),
        *_speed(runs[0]),
        *_load(load),
        *_scope(runs[0], judged),
        *(f"{run.name}: {note.text}." for run in runs for note in run.notes),
    ]


def _reach(judged: Judgement) -> Iterator[str]:
    """Say what each suite's size leaves open; suites of one size share the sentence."""
    groups: dict[tuple[int, float, float], list[str]] = {}
    undeclared: list[str] = []
    hopeless: dict[float, list[str]] = {}
    for reach in judged.verdict.reach:
        name = f"{reach.suite} ({reach.mode})"
        concordant = 100 * reach.smallest_if_concordant
        # the power formula is the score test's; for very few cases the gate asks for more
        powered = max(100 * reach.smallest_at_power_80, concordant)
        groups.setdefault((reach.cases, concordant, powered), []).append(name)
        if reach.margin is None:
            undeclared.append(name)
        elif reach.margin < reach.smallest_if_concordant:
            hopeless.setdefault(100 * reach.margin, []).append(name)
    for (cases, concordant, powered), names in groups.items():
        yield (
            f"{', '.join(names)}: {cases} cases exclude no loss smaller than {concordant:.1f} "
            "points, even with every case equal; with one case in twenty differing by chance, "
            f"the smallest margin met in 4 runs of 5 is {powered:.1f} points."
        )
    for margin, names in hopeless.items():
        yield (
            f"{', '.join(names)}: the declared margin of {margin:g} points is too small for this "
            "many cases: it is not met even if every case is equal."
        )
    if undeclared:
        yield f"{', '.join(undeclared)}: no margin was declared, so nothing is decided there."


def _noise(judged: Judgement) -> Iterator[str]:
    if judged.plan.aa is None:
        yield (
            "There is no A/A launch: how far two launches of the control differ by themselves is "
            "unknown, so a difference cannot be told from noise."
        )
    if judged.plan.replays < 2:
        size = "" if judged.plan.aa is None else "; the A/A launch only shows its size"
        yield f"One replay: discordance beyond the server's own noise is not estimable{size}."
    if judged.plan.aa is not None and judged.plan.replays < 2:
        yield (
            "What varies from launch to launch, alike for all cases (how requests met in batches, "
            "say), is known from the A/A launch only and is not in the p-values: a verdict close "
            "to its bound may turn in another run."
        )


def _levels(runs: Sequence[Run]) -> Iterator[str]:
    unknown = sorted(
        {
            f"{name}={level['level']} ({server['arm']})"
            for run in runs
            for server in run.servers
            for name, level in server["levels"].items()
            if level["in_effect"] is None
        }
    )
    if unknown:
        yield (
            "The server gave no evidence that these levels were in effect: "
            + ", ".join(unknown)
            + ". An arm that ignored its flag would look harmless."
        )


def _speed(run: Run) -> Iterator[str]:
    repeats = speed_repeats(run.plan)
    if speed_modes(run.plan) and repeats < MIN_REPEATS:
        yield (
            f"Each arm's speed was measured in {repeats} launch{'es' if repeats > 1 else ''}; no "
            f"difference in speed can be shown with fewer than {MIN_REPEATS} (plan.speed_repeats)."
        )


def _load(load: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    slow = [row for row in load if row["client_bound"]]
    if slow:
        yield (
            f"In {counted(len(slow), 'cell')} the client, not the server, was the bottleneck: the "
            "load there was lower than C says."
        )
    narrow = [row for row in load if not row["can_fill"]]
    if narrow:
        yield (
            f"{counted(len(narrow), 'cell')} {'has' if len(narrow) == 1 else 'have'} too few cases "
            f"to keep C requests in flight ({_at(narrow)}): that load was never held there. "
            f"{'It decides' if len(narrow) == 1 else 'They decide'} like any other cell."
        )
    filled = [row for row in load if row["can_fill"]]
    short = [
        row
        for row in filled
        if row["reached_share"] is not None and row["reached_share"] < REACHED_SHARE
    ]
    if short:
        yield (
            f"{counted(len(short), 'cell')} reached less than {REACHED_SHARE:.0%} of the "
            f"concurrency asked ({_at(short)}), which says little about that load."
        )
    unknown = [row for row in filled if row["reached_share"] is None]
    if unknown:
        yield (
            f"In {counted(len(unknown), 'cell')} the concurrency reached is not measurable "
            f"({_at(unknown)}): neither the client's mean nor enough of the server's counts are "
            "there."
        )


def _at(rows: Sequence[Mapping[str, Any]]) -> str:
    """Name suites with their levels, each once: `bfcl C4 C8, nll C1`."""
    levels: dict[str, set[int]] = {}
    for row in rows:
        levels.setdefault(row["suite"], set()).add(row["concurrency"])
    return ", ".join(
        f"{suite} {' '.join(f'C{c}' for c in sorted(found))}"
        for suite, found in sorted(levels.items())
    )


def _scope(run: Run, judged: Judgement) -> Iterator[str]:
    levels = ", ".join(str(c) for c in judged.plan.gate_concurrency)
    yield (
        f"Only these cases, this sampling and these concurrency levels ({levels}) were tried, on "
        "the machines named under Provenance; other prompts, lengths and loads are not covered."
    )
    if not judged.nll and any(s["suite"] != "nll" for s in run.plan["suites"].values()):
        yield (
            "No token log-probabilities were measured: a shift of probabilities too small to "
            "change an answer among these cases would not show."
        )
