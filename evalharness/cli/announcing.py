"""What a run can show, said before anything is asked; a run in which nothing gates is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evalharness.errors import PlanError
from evalharness.margins import Entries, idle_margins, margin_for
from evalharness.plan_table import can_admit, nll_bound, nll_lacks, nll_reach, suite_reach

if TYPE_CHECKING:
    from evalharness.manifest import Entry, Manifest
    from evalharness.types import Case

Plan = Mapping[str, Any] | None
DISCORDANCE = 0.05


def refuse_without_gate(plan: Plan, manifest: Manifest) -> None:
    """Raise PlanError where margins are declared and none reaches a suite of the manifest.

    Such a run would take its hours and decide nothing. Without margins it only describes, as
    asked; a manifest of speed suites is measured whatever the margins.
    """
    margins = (plan or {}).get("margins", {})
    gateable = [name for name, about in _entries(manifest).items() if about["kind"] != "speed"]
    if margins and gateable and len(idle_margins(margins, _entries(manifest))) == len(margins):
        raise PlanError(
            f"plan.margins: nothing would be decided; expected a margin for a suite of manifest "
            f"{manifest.name} ({', '.join(gateable)}), found only {', '.join(margins)}; add one, "
            "give the manifest they are for, or write `margins: {}` to describe only"
        )


def announcement(
    plan: Plan, manifest: Manifest, cases: Mapping[str, Sequence[Case]], *, alpha: float
) -> Iterator[str]:
    """Yield what each suite's cases can admit at best, and what the plan asks of them."""
    from evalharness.registry import suite_named

    for entry in manifest.entries.values():
        kind = suite_named(entry.suite).kind
        if kind == "nll":
            yield _nll_line(plan, entry, cases[entry.name], alpha)
        elif kind == "verdict":
            yield _case_line(plan, entry, alpha)
    for name in idle_margins((plan or {}).get("margins", {}), _entries(manifest)):
        yield f"{name}: a margin, but no suite of this manifest"


def mean_tokens(cases: Sequence[Case]) -> float:
    """Return the mean number of scored tokens of NLL cases (one at least)."""
    from evalharness.nll.cases import tokens_of

    return sum(len(tokens_of(case).continuation) for case in cases) / len(cases)


def _case_line(plan: Plan, entry: Entry, alpha: float) -> str:
    n = len(entry.case_ids)
    reach = suite_reach(n, DISCORDANCE, alpha=alpha)
    parts = [
        f"{n} cases can admit a margin of {100 * reach.smallest_if_concordant:.1f} points at best "
        f"(no case differs), about {100 * reach.smallest_at_power:.1f} with 5% of cases differing "
        "(80% power)"
    ]
    for modes, margin in _by_margin(plan, entry):
        if margin is None:
            parts.append(f"no margin{modes}, it will be described only")
            continue
        hopeless = "" if can_admit(n, margin, alpha=alpha) else ": cannot be admitted with so few"
        parts.append(f"the plan asks for {100 * margin:.4g}{modes}{hopeless}")
    return f"{entry.name}: {'; '.join(parts)}"


def _nll_line(plan: Plan, entry: Entry, cases: Sequence[Case], alpha: float) -> str:
    reach = nll_reach(len(cases), mean_tokens(cases), alpha=alpha)
    parts = [f"{len(cases)} cases of log-probabilities; {nll_bound(reach)}"]
    for modes, margin in _by_margin(plan, entry):
        if margin is None:
            parts.append(f"no margin{modes}, it will be described only")
        elif lacking := nll_lacks(reach, margin["tail_share"]):
            parts.append(f"the plan's margin{modes} cannot be admitted with so few: {lacking}")
        else:
            parts.append(
                f"the plan asks for {margin['nats_per_token']:g} nats a token and a tail share "
                f"of {margin['tail_share']:g}{modes}"
            )
    return f"{entry.name}: {'; '.join(parts)}"


def _by_margin(plan: Plan, entry: Entry) -> Iterator[tuple[str, Any]]:
    """Yield (" (its modes)", margin) of each margin; "" for one that all modes share.

    Nothing without a plan: its margins may still be given when it is judged.
    """
    if plan is None:
        return
    margins = plan.get("margins", {})
    found = [(mode, margin_for(margins, entry.name, mode, entry.suite)) for mode in entry.modes]
    distinct = [
        value for i, (_, value) in enumerate(found) if value not in dict(found[:i]).values()
    ]
    for margin in distinct:
        modes = ", ".join(mode for mode, value in found if value == margin)
        yield ("" if len(distinct) == 1 else f" ({modes})"), margin


def _entries(manifest: Manifest) -> Entries:
    from evalharness.registry import suite_named

    return {
        entry.name: {
            "suite": entry.suite, "modes": entry.modes, "kind": suite_named(entry.suite).kind
        }
        for entry in manifest.entries.values()
    }  # fmt: skip
