"""Placement is blocked, balanced and the seed's; the board moves what a lost node had."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalharness.arms import PlannedLaunch, launch_order
from evalharness.cluster.board import Board
from evalharness.cluster.placing import place, room


def launches(arms: int, shards: int, seed: int = 1) -> tuple[PlannedLaunch, ...]:
    names = [f"arm{number}" for number in range(arms)]
    return launch_order(names, aa=True, order="randomized", seed=seed, replays=1, shards=shards)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_whole_blocks_meet_all_nodes_equally(arms: int, nodes: int, rounds: int, seed: int) -> None:
    slots = {f"n{number}": 1 for number in range(nodes)}
    placed = place(launches(arms, nodes * rounds), slots, seed=seed)
    by_block: dict[int, set[str]] = {}
    for launch, node in placed.items():
        by_block.setdefault(launch.shard, set()).add(node)
    assert all(len(found) == 1 for found in by_block.values()), "a block has one node"
    met = Counter((launch.arm, node) for launch, node in placed.items())
    assert set(met.values()) == {rounds}
    assert len(met) == (arms + 1) * nodes


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(2, 8), st.integers(0, 99))
def test_fewer_blocks_than_nodes_are_spread_in_a_cycle(arms: int, nodes: int, seed: int) -> None:
    slots = {f"n{number}": 1 for number in range(nodes)}
    shards = nodes - 1
    placed = place(launches(arms, shards), slots, seed=seed)
    loads = Counter(placed.values())
    most = max(loads.values())
    least = min(loads.get(node, 0) for node in slots)
    assert most - least <= shards
    met = Counter((launch.arm, node) for launch, node in placed.items())
    assert set(met.values()) == {1}, "no arm comes to a node twice before it saw the others"


def test_the_seed_decides_and_order_of_nodes_does_not() -> None:
    found = launches(4, 6)
    slots = {"a": 1, "b": 1, "c": 1}
    first = place(found, slots, seed=1)
    assert first == place(found, dict(reversed(slots.items())), seed=1)
    assert len({tuple(place(found, slots, seed=seed).values()) for seed in range(30)}) == 6


def test_a_node_with_room_for_two_gets_twice_as_much() -> None:
    placed = place(launches(3, 6), {"big": 2, "small": 1}, seed=3)
    loads = Counter(placed.values())
    assert loads["big"] == 2 * loads["small"]
    assert set(place(launches(3, 2), {"big": 2, "small": 1}, seed=3).values()) == {"big", "small"}


@pytest.mark.parametrize(
    ("demand", "exclusive", "expected"),
    [
        ({"GPU": 4}, False, (2, "")),
        ({"GPU": 4}, True, (1, "")),
        ({"GPU": 16}, False, (0, "GPU=8 of 16")),
        ({"GPU": 1, "CPU": 4}, False, (4, "")),
        ({"TPU": 1, "CPU": 99}, False, (0, "TPU=0 of 1, CPU=16 of 99")),
        ({"CPU": 0.5}, False, (32, "")),
    ],
)
def test_room(demand: dict[str, float], exclusive: bool, expected: tuple[int, str]) -> None:
    assert room({"CPU": 16, "GPU": 8}, demand, exclusive=exclusive) == expected


async def test_a_lost_nodes_launches_move_block_by_block_and_everybody_waits_for_them() -> None:
    found = launches(2, 3)
    placed = {launch: f"n{launch.shard}" for launch in found}
    board = Board(placed, ["n1", "n2", "n3"])
    ran: dict[str, list[PlannedLaunch]] = {"n1": [], "n2": [], "n3": []}

    async def slot(node: str) -> None:
        while (launch := await board.take(node)) is not None:
            await asyncio.sleep(0.001 if node != "n2" else 0.02)
            if node == "n2":
                assert await board.again(node, launch, lost=True)
            else:
                ran[node].append(launch)
            await board.done()

    await asyncio.wait_for(asyncio.gather(*map(slot, ran)), 10)
    assert Counter(ran["n1"] + ran["n3"]) == Counter(found)
    moved = [{launch.shard for launch in ran[node]} for node in ("n1", "n3")]
    assert sum(2 in shards for shards in moved) == 1, "the block stays together"


async def test_the_last_node_lost_is_told_and_close_ends_the_waiting() -> None:
    found = launches(1, 1)
    board = Board(dict.fromkeys(found, "n1"), ["n1", "n2"])
    taken = await board.take("n1")
    assert taken is not None
    waiting = asyncio.ensure_future(board.take("n2"))
    await asyncio.sleep(0)
    await board.close()
    assert await waiting is None
    assert await board.again("n2", taken, lost=True)
    assert not await board.again("n1", taken, lost=True)
