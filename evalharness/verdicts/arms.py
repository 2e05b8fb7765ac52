"""From cells to arms: every gate cell must pass, and several arms share one alpha.

"All suites and all levels" is an intersection-union test (Berger 1982): each at full alpha.
"Any of several arms" is a union: Holm, or the sequence that the plan declared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from evalharness.stats import fixed_sequence, holm
from evalharness.verdicts.cell_types import CellVerdict, NllCellVerdict, Underlying
from evalharness.verdicts.inputs import PlanFacts
from evalharness.verdicts.precedence import combine
from evalharness.verdicts.types import ArmVerdict
from evalharness.verdicts.wording import floor_text, never_right, p_text


@dataclass(frozen=True, slots=True)
class ArmCells:
    """An arm's judged cells, and the gate cells that the plan declared but that have no data.

    `unserved`: kernel routes that the arm's flags ask for and that never ran.
    """

    arm: str
    cells: tuple[CellVerdict, ...]
    nll_cells: tuple[NllCellVerdict, ...]
    missing: tuple[str, ...]
    unserved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Adjusted:
    """An arm's p after multiplicity, with unobserved cases at their worst and at their best."""

    worst: float
    best: float


def _gates(cells: ArmCells) -> list[CellVerdict | NllCellVerdict]:
    every: list[CellVerdict | NllCellVerdict] = [*cells.cells, *cells.nll_cells]
    return [cell for cell in every if cell.gate]


def arm_p(cells: ArmCells, *, best: bool = False) -> float:
    """Return the largest p of the gate cells; 1 where one is missing, blocked or none gates.

    `best` takes the unobserved cases at their best for the candidate.
    """
    gates = _gates(cells)
    if not gates or cells.missing or cells.unserved or any(cell.aa_failed for cell in gates):
        return 1.0
    return max(c.p_best if best and isinstance(c, CellVerdict) else c.p for c in gates)


def adjust(plan: PlanFacts, p_values: dict[str, float]) -> dict[str, float]:
    """Return the arms' p-values after Holm, or after the declared sequence.

    An arm outside the declared sequence gets 1: it was not declared, so it cannot pass.
    """
    if plan.sequence == "holm":
        return dict(zip(p_values, holm(tuple(p_values.values())), strict=True))
    ordered = fixed_sequence(tuple(p_values[arm] for arm in plan.sequence))
    adjusted = dict.fromkeys(p_values, 1.0)
    adjusted.update(zip(plan.sequence, ordered, strict=True))
    return adjusted


def _where(cell: CellVerdict | NllCellVerdict) -> str:
    suite = cell.suite if isinstance(cell, CellVerdict) else "nll"
    return f"{suite}.{cell.mode} C{cell.concurrency}"


def _underlying(cells: ArmCells, adjusted: Adjusted, alpha: float) -> Underlying:
    found: list[Underlying] = [c.underlying for c in _gates(cells)]
    if cells.missing or cells.unserved:
        found.append("incomplete")
    verdict = combine(found)
    if verdict != "admitted" or adjusted.worst <= alpha:
        return verdict
    # another arm's unobserved cases may be all that stands between this one and its alpha
    return "incomplete" if adjusted.best <= alpha else "undecided"


def _reason(cells: ArmCells, verdict: Underlying, *, adjusted: Adjusted, plan: PlanFacts) -> str:
    gates = _gates(cells)
    if not gates and not cells.missing:
        return "nothing gates: no suite has a margin at a gate concurrency"
    if verdict == "admitted":
        after = f"adjusted {p_text(adjusted.worst)}, alpha {plan.alpha:g}"
        return f"all {len(gates)} gate cells pass; {after}{_floor(gates)}"
    if verdict == "incomplete" and cells.unserved:
        return "; ".join(cells.unserved)
    if verdict == "incomplete" and cells.missing:
        return f"no data for {', '.join(cells.missing)}"
    deciding = [c for c in gates if c.underlying == verdict]
    if not deciding:
        how = "Holm over the arms" if plan.sequence == "holm" else "the declared sequence"
        return (
            f"every gate cell passes alone, but not after {how}: "
            f"adjusted {p_text(adjusted.worst)}, alpha {plan.alpha:g}"
        )
    return f"{_where(deciding[0])}: {deciding[0].reason}{_in_all(deciding, verdict)}"


def _floor(gates: list[CellVerdict | NllCellVerdict]) -> str:
    """Name the suites and levels at which the control has nothing right, "" where none is so."""
    levels: dict[str, list[str]] = {}
    for cell in gates:
        if isinstance(cell, CellVerdict) and never_right(cell.table):
            levels.setdefault(f"{cell.suite}.{cell.mode}", []).append(f"C{cell.concurrency}")
    return floor_text(", ".join(" ".join((s, *c)) for s, c in levels.items())) if levels else ""


def _in_all(deciding: list[CellVerdict | NllCellVerdict], verdict: Underlying) -> str:
    """Say how many cells of each kind have the verdict, where it is more than one."""
    suite = sum(isinstance(cell, CellVerdict) for cell in deciding)
    kinds = ((suite, "suite"), (len(deciding) - suite, "NLL"))
    parts = [f"{n} {kind} cell{'s' if n > 1 else ''}" for n, kind in kinds if n]
    return f" ({verdict} in {' and '.join(parts)})" if len(deciding) > 1 else ""


def _notes(plan: PlanFacts, cells: ArmCells) -> tuple[str, ...]:
    notes = [
        f"{_where(c)}: {note}"
        for c in _gates(cells)
        for note in c.notes
        if note.startswith(("admitted, with", "the A/A launch fails"))
    ]
    free = dict.fromkeys(
        f"{suite}.{mode}" for suite, mode in plan.suites if plan.margin(suite, mode) is None
    )
    if free:
        notes.append(f"described, not judged, for want of a margin: {', '.join(free)}")
    if plan.sequence != "holm" and cells.arm not in plan.sequence:
        notes.append("not in the plan's declared sequence, so it cannot be admitted")
    return tuple(notes)


def judge_arm(
    plan: PlanFacts, cells: ArmCells, *, p: float, adjusted: Adjusted, exploratory: bool
) -> ArmVerdict:
    """Return the arm's verdict; a broken plan makes it, and its cells, exploratory."""
    underlying = _underlying(cells, adjusted, plan.alpha)
    reason = _reason(cells, underlying, adjusted=adjusted, plan=plan)
    shown, shown_nll = cells.cells, cells.nll_cells
    if exploratory:
        reason = f"exploratory; by the rule it would be {underlying}: {reason}"
        shown = tuple(replace(c, verdict="exploratory") for c in shown)
        shown_nll = tuple(replace(c, verdict="exploratory") for c in shown_nll)
    levels = next(arm.levels for arm in plan.arms if arm.name == cells.arm)
    return ArmVerdict(
        arm=cells.arm,
        levels=levels,
        verdict="exploratory" if exploratory else underlying,
        underlying=underlying,
        reason=reason,
        notes=_notes(plan, cells),
        p=p,
        p_adjusted=adjusted.worst,
        cells=shown,
        nll_cells=shown_nll,
    )
