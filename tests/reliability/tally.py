"""What a scenario found: one row of docs/reliability.md's table."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts of one fault.

    times: how often it was planted. lost: responses, rows or complete cells that are gone or were
    asked again. wrong: outcomes, exit codes, messages or leftovers that are not as documented.
    """

    fault: str
    times: int = 0
    lost: int = 0
    wrong: int = 0
    notes: list[str] = field(default_factory=list)

    def check(self, holds: bool, said: str, *, loses: bool = False) -> None:
        """Count what does not hold, and remember the sentence."""
        if holds:
            return
        if loses:
            self.lost += 1
        else:
            self.wrong += 1
        self.notes.append(f"{self.fault}, time {self.times}: {said}")

    @property
    def clean(self) -> bool:
        """Say whether nothing was lost or wrong."""
        return self.times > 0 and not self.lost and not self.wrong


def merged(tallies: list[Tally]) -> list[Tally]:
    """Return one tally for each fault, in the order in which they came."""
    found: dict[str, Tally] = {}
    for tally in tallies:
        one = found.setdefault(tally.fault, Tally(tally.fault))
        one.times += tally.times
        one.lost += tally.lost
        one.wrong += tally.wrong
        one.notes += tally.notes
    return list(found.values())
