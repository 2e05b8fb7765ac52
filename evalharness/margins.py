"""What a margin may name and which form it has: one rule for arms files, options and plans.

A margin with another name or form would be frozen with the rest and then gate nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalharness.text import printable

# Entries as plan.json has them: name -> {"suite": ..., "modes": [...], ...}.
Entries = Mapping[str, Mapping[str, Any]]

# Of a margin and of alpha: with less, p-values lose their digits and the search for the cases
# that it needs never ends.
SMALLEST = 1e-9
SUITE_OF_NLL, SUITE_OF_SPEED = "nll", "speed"
PARTS = ("nats_per_token", "tail_nats", "tail_share")
NATS = f"a mapping {{{', '.join(PARTS)}}}"
SHARE = "one number, a share of cases (0.05 is 5 points)"


def margin_names(entry: str, mode: str, suite: str) -> tuple[str, ...]:
    """Return the names under which a mode's margin may stand; the first one given counts."""
    return f"{entry}.{mode}", entry, f"{suite}.{mode}", suite


def margin_for(margins: Mapping[str, Any], entry: str, mode: str, suite: str) -> Any:
    """Return the margin that counts for a mode; None where none is given."""
    names = margin_names(entry, mode, suite)
    return next((margins[name] for name in names if name in margins), None)


def idle_margins(margins: Mapping[str, Any], asked: Entries) -> list[str]:
    """Return the names of the margins that apply to no mode of the entries asked."""
    return [name for name in margins if not _reached(name, asked)]


def margin_problems(
    margins: Mapping[str, Any], asked: Entries, *, known: Entries | None, nats: str = NATS
) -> Iterator[str]:
    """Yield one sentence for each margin that could not gate what it names.

    margins: name -> a number, or anything else for the three margins of log-probabilities.
    asked: the entries that are asked. known: suites that a margin may name though none of them
    is asked (one arms file serves several manifests); None where any such name may stand.
    nats: how the three margins are written, for the message.
    """
    for name, value in margins.items():
        entries = asked if _named(name, asked) else (known or {})
        if not _named(name, entries):
            if known is not None:
                expected = _list(sorted({*asked, *known}))
                yield f"no suite {_first(name)!r}; expected one of {expected}, or suite.mode"
            continue
        reached = _reached(name, entries)
        if not reached:
            base, mode, modes = _parts(name, entries)
            yield f"{base} has no mode {printable(mode)!r} here; it has {_list(modes)}"
        elif any(suite == SUITE_OF_SPEED for suite in reached.values()):
            yield f"{name} is measured, not gated; leave it out"
        else:
            yield from _form(name, value, reached, nats)


def _form(name: str, value: Any, reached: Mapping[str, str], nats: str) -> Iterator[str]:
    """Yield what is wrong with a margin's form for the entries (name -> suite) it reaches."""
    number = isinstance(value, int | float)
    found = f"one number, {value}" if number else "three margins of log-probabilities"
    wrong = [entry for entry, suite in reached.items() if number == (suite == SUITE_OF_NLL)]
    if wrong:
        kind = "scored by log-probabilities" if number else "scored right or wrong"
        expected = nats if number else SHARE
        yield f"{name}: {kind} ({_list(wrong)}); expected {expected}, found {found}"
        return
    for part, size in _sizes(name, value):
        share = part == name or part.endswith("tail_share")
        if size < SMALLEST or (share and size >= 1):
            below = " and below 1 (0.05 is 5 points)" if share else ""
            yield f"{part}: expected a number of at least {SMALLEST:g}{below}, found {size}"


def _sizes(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield a margin's numbers, each with its full name."""
    if isinstance(value, int | float):
        yield name, value
        return
    for part in PARTS:
        size = value[part] if isinstance(value, Mapping) else getattr(value, part)
        yield f"{name}.{part}", size


def _named(name: str, entries: Entries) -> list[str]:
    """Return the entries and suites of which a margin's name is the name, or name.mode."""
    bases = {*entries, *(str(entry["suite"]) for entry in entries.values())}
    return [base for base in bases if name == base or name.startswith(f"{base}.")]


def _reached(name: str, entries: Entries) -> dict[str, str]:
    """Return each entry with a mode to which the margin applies, and its suite."""
    return {
        entry: about["suite"]
        for entry, about in entries.items()
        if any(name in margin_names(entry, mode, about["suite"]) for mode in about["modes"])
    }


def _parts(name: str, entries: Entries) -> tuple[str, str, list[str]]:
    """Split a name that reaches nothing: the entry or suite, the mode, and the modes there are."""
    base = max(_named(name, entries), key=len)
    own = [about for entry, about in entries.items() if base in (entry, about["suite"])]
    modes = dict.fromkeys(mode for about in own for mode in about["modes"])
    return base, name[len(base) + 1 :], list(modes)


def _first(name: str) -> str:
    return printable(name.partition(".")[0])


def _list(names: Any) -> str:
    return ", ".join(names)
