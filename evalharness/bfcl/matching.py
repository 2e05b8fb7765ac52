"""Perfect matching of parallel calls to golds: the corrected reading of rule 2."""

from __future__ import annotations

from collections.abc import Sequence

from evalharness.bfcl.checker import VALID, Call, Document, Gold, fits


def perfect_match(
    functions: Sequence[Document], golds: Sequence[Gold], calls: Sequence[Call]
) -> str:
    """Return "valid" if the calls can be given to the golds one to one, else the fault's tag.

    Augmenting paths (Kuhn); golds are few, so their cube is nothing.
    """
    if len(calls) != len(golds):
        return "parallel_function_checker_no_order:wrong_count"
    edges = [
        [index for index, call in enumerate(calls) if fits(functions, gold, call)] for gold in golds
    ]
    owner: dict[int, int] = {}
    for gold_index in range(len(golds)):
        if not _augment(gold_index, edges, owner=owner, seen=set()):
            return "parallel_function_checker_no_order:cannot_find_match"
    return VALID


def _augment(
    gold: int, edges: Sequence[Sequence[int]], *, owner: dict[int, int], seen: set[int]
) -> bool:
    """Give `gold` a call, moving earlier owners along if need be; True when that worked."""
    for call in edges[gold]:
        if call in seen:
            continue
        seen.add(call)
        if call not in owner or _augment(owner[call], edges, owner=owner, seen=seen):
            owner[call] = gold
            return True
    return False
