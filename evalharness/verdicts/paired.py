"""Two arms' outcomes become differences: unobserved cases at their worst, or at their best.

Worst for the candidate: its own unobserved case is wrong, the control's is correct, both is a
loss. Best: the reverse. A verdict that the two bounds disagree on is incomplete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evalharness.verdicts.cell_types import Discordance
from evalharness.verdicts.inputs import CORRECT, UNOBSERVED, WRONG, OutcomeCube, OutcomeTable

Bound = Literal["worst", "best"]


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Outcomes of control and candidate on the same cases: int8, replays x cases each."""

    control: OutcomeCube
    candidate: OutcomeCube

    @property
    def unobserved(self) -> NDArray[np.bool_]:
        """Cases with an unobserved outcome on either side, in any replay."""
        hidden = (self.control == UNOBSERVED) | (self.candidate == UNOBSERVED)
        return np.asarray(hidden.any(axis=0))

    def bounded(self, bound: Bound) -> Pair:
        """Return the pair with unobserved outcomes replaced by their bound."""
        for_control, for_candidate = (CORRECT, WRONG) if bound == "worst" else (WRONG, CORRECT)
        return Pair(
            np.where(self.control == UNOBSERVED, np.int8(for_control), self.control),
            np.where(self.candidate == UNOBSERVED, np.int8(for_candidate), self.candidate),
        )

    def differences(self, bound: Bound) -> NDArray[np.int8]:
        """Return candidate minus control, cases x replays, under the bound."""
        both = self.bounded(bound)
        return np.asarray((both.candidate - both.control).T)

    def discordance(self, bound: Bound = "worst") -> Discordance:
        """Return the paired table over all replays under the bound."""
        both = self.bounded(bound)
        right, wrong = both.candidate == CORRECT, both.candidate == WRONG
        return Discordance(
            both_right=int((right & (both.control == CORRECT)).sum()),
            wins=int((right & (both.control == WRONG)).sum()),
            losses=int((wrong & (both.control == CORRECT)).sum()),
            both_wrong=int((wrong & (both.control == WRONG)).sum()),
        )

    def observed(self) -> Pair:
        """Return the pair on the cases that both sides observed in every replay."""
        seen = ~self.unobserved
        return Pair(self.control[:, seen], self.candidate[:, seen])


def pair_of(table: OutcomeTable, *, control: str, candidate: str) -> Pair:
    """Return the two arms' outcomes. ValueError if the table lacks one of them."""
    return Pair(table.of(control), table.of(candidate))


def net_signs(differences: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return each case's net direction over its replays: 1 win, -1 loss, 0 neither."""
    return np.asarray(np.sign(differences.sum(axis=1, dtype=np.int64)))
