"""Which launch goes to which node: blocked randomisation by the run's seed.

A block holds every arm once: one shard (and, where the order is blocked, one replay). With at
least as many blocks as nodes a block stays whole on one node, so every arm meets every node
equally often and each pair of answers to one case comes from one machine. With fewer, a block's
arms are spread over the nodes in a cyclic design, and the report says what is confounded.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from evalharness.arms import PlannedLaunch
from evalharness.types import canonical_json, sha256_hex


def place(
    launches: Sequence[PlannedLaunch], slots: Mapping[str, int], *, seed: int
) -> dict[PlannedLaunch, str]:
    """Return the node of every launch; the same launches, nodes and seed give the same answer.

    slots: node -> how many launches it can hold at once (at least 1).
    """
    blocks: dict[tuple[tuple[int, ...], int], list[PlannedLaunch]] = {}
    for launch in launches:
        blocks.setdefault((launch.replicates, launch.shard), []).append(launch)
    turns = _turns(slots, _generator("nodes", slots, seed))
    if len(blocks) >= len(slots):
        return {
            launch: turns[index % len(turns)]
            for index, block in enumerate(blocks.values())
            for launch in block
        }
    arms = sorted({launch.arm for launch in launches})
    _generator("arms", arms, seed).shuffle(arms)
    return {
        launch: turns[(arms.index(launch.arm) + index) % len(turns)]
        for index, block in enumerate(blocks.values())
        for launch in block
    }


def _turns(slots: Mapping[str, int], generator: random.Random) -> list[str]:
    """Return the nodes in random order, those with room for more again in later rounds."""
    nodes = sorted(slots)
    generator.shuffle(nodes)
    rounds = range(max(slots.values()))
    return [node for taken in rounds for node in nodes if slots[node] > taken]


def _generator(what: str, names: Sequence[str] | Mapping[str, int], seed: int) -> random.Random:
    return random.Random(int(sha256_hex(canonical_json([what, sorted(names), seed])), 16))


def room(
    resources: Mapping[str, float], demand: Mapping[str, float], *, exclusive: bool
) -> tuple[int, str]:
    """Return how many launches fit on a node, and what it lacks where none does.

    exclusive: at most one, since nothing says how many servers the node could bear.
    """
    lacking = [
        f"{name}={resources.get(name, 0):g} of {amount:g}"
        for name, amount in demand.items()
        if resources.get(name, 0) < amount
    ]
    if lacking:
        return 0, ", ".join(lacking)
    held = min(int(resources[name] // amount) for name, amount in demand.items() if amount > 0)
    return (1 if exclusive else held), ""
