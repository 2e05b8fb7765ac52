"""Runs in, verdicts out: is the question asked the one that the plan froze, and what follows.

The statistics are pure functions in `evalharness.verdicts`; the pairing is in
`evalharness.pairing`. Here the plan becomes facts, with every way in which it was changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evalharness.arms.parallel import processes_of
from evalharness.errors import PlanError
from evalharness.margins import SMALLEST, margin_for, margin_problems
from evalharness.pairing import (
    nll_label,
    nll_tables,
    outcome_tables,
    slots,
    speed_repeats,
    suite_modes,
)
from evalharness.route_coverage import uncovered
from evalharness.runs import Run, declared_scorers
from evalharness.types import AA
from evalharness.verdicts import judge
from evalharness.verdicts.types import (
    NllMargin,
    NllTable,
    OutcomeTable,
    PlanArm,
    PlanFacts,
    RunVerdict,
)

MarginValue = float | NllMargin


@dataclass(frozen=True, slots=True)
class Asked:
    """What the reader asks for beyond the plan; anything here that differs is exploratory.

    `margins` maps suite, suite.mode or nll.<mode> to a share of cases or an NllMargin.
    """

    margins: Mapping[str, MarginValue] = field(default_factory=dict)
    alpha: float | None = None
    scorers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of one or more runs with the tables it was taken from."""

    plan: PlanFacts
    verdict: RunVerdict
    tables: tuple[OutcomeTable, ...]
    nll: tuple[NllTable, ...]


def judge_runs(runs: Sequence[Run], asked: Asked) -> Judgement:
    """Judge every arm of the runs. Raises PlanError where the runs ask different questions."""
    same_plan(runs)
    refuse_unknown(runs[0], asked)
    plan = plan_facts(runs, asked, tuple(changes(runs, asked)))
    tables, nll = tuple(outcome_tables(runs)), tuple(nll_tables(runs))
    return Judgement(plan, judge(plan, tables, nll), tables, nll)


def refuse_unknown(run: Run, asked: Asked) -> None:
    """Raise PlanError where a margin or scorer is asked for a suite that the run does not have.

    Also where a margin has the form of another kind of suite, since it would replace the plan's
    and gate nothing, and where a margin or alpha is too small for the statistics.
    """
    names: set[str] = set()
    for nll in (False, True):
        for entry, mode in suite_modes(run.plan, nll=nll):
            suite = run.plan["suites"][entry]["suite"]
            names |= {entry, f"{entry}.{mode}", suite, f"{suite}.{mode}"}
    unknown = sorted((set(asked.margins) | set(asked.scorers)) - names)
    if unknown:
        raise PlanError(
            f"{run.path} has no suite {', '.join(unknown)}; expected one of "
            f"{', '.join(sorted(names))}"
        )
    three = "NATS_PER_TOKEN,TAIL_NATS,TAIL_SHARE"
    for problem in margin_problems(asked.margins, run.plan["suites"], known=None, nats=three):
        raise PlanError(f"--margin: {problem}")
    if asked.alpha is not None and asked.alpha < SMALLEST:
        raise PlanError(f"--alpha {asked.alpha}: expected a number of at least {SMALLEST:g}")


def same_plan(runs: Sequence[Run]) -> None:
    """Refuse runs that do not ask the same question; PlanError names every difference."""
    refuse_differences(runs, [comparable(run) for run in runs])


def refuse_differences(runs: Sequence[Run], asked: Sequence[Mapping[str, Any]]) -> None:
    """Raise PlanError where a run's question differs from the first's, or a run comes twice."""
    first = asked[0]
    for run, other in zip(runs[1:], asked[1:], strict=True):
        differences = [
            f"{name} ({_short(first[name])} in {runs[0].name}, {_short(other[name])} in {run.name})"
            for name in first
            if first[name] != other[name]
        ]
        if differences:
            raise PlanError(
                f"{runs[0].path} and {run.path} cannot be judged together: they differ in "
                + "; ".join(differences)
                + "; judge each run alone"
            )
    places = [run.path.resolve() for run in runs]
    plans = [run.sha256 for run in runs]
    for run in runs:
        if places.count(run.path.resolve()) > 1 or plans.count(run.sha256) > 1:
            raise PlanError(f"{run.path} comes twice, or as a copy; a run is no replay of itself")


def comparable(run: Run) -> dict[str, Any]:
    """Return what must be equal in runs that are judged together. Order and time may differ."""
    plan = run.plan
    kept = (
        "declared", "concurrency", "gate_concurrency", "margins", "alpha", "replays",
        "sequence", "control", "aa", "suites",
    )  # fmt: skip
    return {
        "manifest": plan["manifest"]["sha256"],
        "scorers": dict(sorted(run.scorers.items())),
        "speed_repeats": speed_repeats(plan),
        **{name: plan[name] for name in kept},
        "arms": {arm["name"]: arm["digest"] for arm in plan["arms"]},
    }


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def plan_facts(runs: Sequence[Run], asked: Asked, changed: tuple[str, ...]) -> PlanFacts:
    """Return the first run's frozen plan as the verdicts need it, at the margins asked."""
    plan = runs[0].plan
    margins = {**_margins(plan["margins"]), **asked.margins}
    arms = [PlanArm(arm["name"], tuple(arm["levels"].items())) for arm in plan["arms"]]
    if plan["aa"] and all(arm.name != AA for arm in arms):
        control = next(arm for arm in arms if arm.name == plan["control"])
        arms.append(PlanArm(AA, control.levels))
    sequence = plan["sequence"]
    return PlanFacts(
        declared=plan["declared"],
        changed=changed,
        alpha=plan["alpha"] if asked.alpha is None else asked.alpha,
        margins=tuple(_case_margins(plan, margins)),
        nll_margins=tuple(_nll_margins(plan, margins)),
        gate_concurrency=tuple(plan["gate_concurrency"]),
        sequence="holm" if sequence == "holm" else tuple(sequence),
        arms=tuple(arms),
        factors=tuple((name, tuple(levels)) for name, levels in plan["factors"].items()),
        control=plan["control"],
        aa=AA if plan["aa"] else None,
        replays=plan["replays"],
        suites=tuple(suite_modes(plan, nll=False)),
        seed=plan["seed"],
        unserved=tuple(_unserved(runs)),
    )


def _unserved(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """Yield (arm, sentence) for each launch with cells whose flags' kernel routes did not run."""
    for run in runs:
        arms = {arm["name"]: arm for arm in run.plan["arms"]}
        servers = {(server["arm"], server["launch"]): server for server in run.servers}
        used = {(cell.key.arm, cell.launch) for cell in run.cells.values()}
        for name, launch in sorted(used):
            arm = arms.get(name)
            if arm is None:
                continue
            server = servers.get((name, launch))
            if server is None:
                yield name, f"launch {launch}: no server.json says what served it"
                continue
            for text in uncovered(arm["env"], server["route_hits"], processes_of(arm["argv"])):
                yield name, f"launch {launch}: {text}"


def _margins(declared: Mapping[str, Any]) -> dict[str, MarginValue]:
    return {
        name: NllMargin(name, **value) if isinstance(value, Mapping) else float(value)
        for name, value in declared.items()
    }


def _case_margins(
    plan: Mapping[str, Any], margins: Mapping[str, MarginValue]
) -> Iterator[tuple[str, float]]:
    """Yield (entry.mode, margin): an entry's own margin, else that of the suite it asks."""
    for entry, mode in suite_modes(plan, nll=False):
        margin = margin_for(margins, entry, mode, plan["suites"][entry]["suite"])
        if isinstance(margin, float):
            yield f"{entry}.{mode}", margin


def _nll_margins(
    plan: Mapping[str, Any], margins: Mapping[str, MarginValue]
) -> Iterator[NllMargin]:
    """Yield each NLL mode's margins, found like `_case_margins`' and labelled as its tables."""
    for entry, mode in suite_modes(plan, nll=True):
        margin = margin_for(margins, entry, mode, plan["suites"][entry]["suite"])
        if isinstance(margin, NllMargin):
            yield replace(margin, mode=nll_label(entry, mode))


def _margin_text(value: MarginValue | None) -> str:
    if not isinstance(value, NllMargin):
        return "none" if value is None else f"{value:g}"
    return f"{value.nats_per_token:g},{value.tail_nats:g},{value.tail_share:g}"


def changes(runs: Sequence[Run], asked: Asked) -> Iterator[str]:
    """Yield every way in which the question, or a file, is no longer what the plan froze."""
    plan = runs[0].plan
    declared = _margins(plan["margins"])
    for name, value in asked.margins.items():
        if declared.get(name) != value:
            frozen = _margin_text(declared.get(name))
            yield f"margin {name}: plan {frozen}, asked {_margin_text(value)}"
    if asked.alpha is not None and asked.alpha != plan["alpha"]:
        yield f"alpha: plan {plan['alpha']}, asked {asked.alpha}"
    for name, frozen in declared_scorers(plan).items():
        if runs[0].scorers[name] != frozen:
            yield f"scorer of {name}: plan {frozen}, asked {runs[0].scorers[name]}"
    found = len(slots(runs))
    if found > plan["replays"]:
        yield f"replays: plan {plan['replays']}, found {found} in {len(runs)} run(s)"
    for run in runs:
        for note in run.notes:
            if note.kind == "changed":
                yield f"{run.name}/{note.text}"
