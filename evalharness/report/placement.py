"""On which node each arm ran, and whether an arm can be told apart from its node.

A node is a level of a factor that nobody asked about: another card, driver or neighbour. Where an
arm and the control share their nodes, its effect is that of the arm; where they do not, it is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalharness.pairing import arm_names
from evalharness.runs import Run, StoredCell

# Share of an arm's responses on nodes where the control gave as many: below it, a sentence.
BALANCED_SHARE = 0.8
Nodes = Mapping[tuple[int, int], str]


def placement_section(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the nodes, what each arm did on each, and how far each contrast shares its nodes."""
    nodes = {
        (index, server["launch"]): _name(server["node"])
        for index, run in enumerate(runs)
        for server in run.servers
    }
    return {
        "nodes": _nodes(runs),
        "arms": list(_arms(runs, nodes)),
        "contrasts": [
            row for arm in arm_names(runs[0].plan)[1:] for row in _contrast(runs, nodes, arm)
        ],
    }


def _name(node: Mapping[str, Any]) -> str:
    return str(node.get("name") or node["host"])


def _nodes(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return each node once, with the GPUs that launches had there and the driver."""
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        for server in run.servers:
            node = server["node"]
            row = found.setdefault(
                _name(node),
                {"node": _name(node), "host": node["host"], "gpus": set(), "drivers": set()},
            )
            row["gpus"] |= set(_gpus(node))
            row["drivers"] |= {node["driver"]} - {None}
    return [
        {**row, "gpus": sorted(row["gpus"]), "drivers": sorted(row["drivers"])}
        for _, row in sorted(found.items())
    ]


def _gpus(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the cards that the launch was given; all where nobody gave it any."""
    given = node.get("gpu_ids")
    for card in node["gpus"]:
        if given is None or str(card["index"]) in given or card["uuid"] in given:
            yield str(card["name"])


def _arms(runs: Sequence[Run], nodes: Nodes) -> Iterator[dict[str, Any]]:
    launches: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    cells: dict[tuple[str, str], list[StoredCell]] = defaultdict(list)
    for index, run in enumerate(runs):
        for cell in (*run.cells.values(), *run.aborted):
            place = (cell.key.arm, nodes.get((index, cell.launch), "unknown"))
            launches[place].add((index, cell.launch))
            cells[place].append(cell)
    for arm, node in sorted(launches):
        complete = [cell for cell in cells[arm, node] if cell.state == "complete"]
        yield {
            "arm": arm,
            "node": node,
            "launches": sorted(launch for _, launch in launches[arm, node]),
            "cells": len(complete),
            "responses": sum(cell.record["rows"] for cell in complete),
            "stopped_cells": len(cells[arm, node]) - len(complete),
        }


def _contrast(runs: Sequence[Run], nodes: Nodes, arm: str) -> Iterator[dict[str, Any]]:
    """Yield one arm's row: how many of its paired responses come from the control's nodes.

    same_node_share: of the pairs, those whose two answers one node gave. overlap: the sum over
    nodes of the smaller of the two sides' shares; 1 is perfect balance, 0 confounds node and arm.
    """
    sides: tuple[dict[str, int], dict[str, int]] = (defaultdict(int), defaultdict(int))
    same = pairs = 0
    for index, run in enumerate(runs):
        for key, cell in run.cells.items():
            other = run.cells.get(replace(key, arm=run.plan["control"]))
            if key.arm != arm or other is None or {cell.state, other.state} != {"complete"}:
                continue
            rows = int(cell.record["rows"])
            here, there = (nodes.get((index, one.launch), "unknown") for one in (cell, other))
            sides[0][here] += rows
            sides[1][there] += rows
            same += rows * (here == there)
            pairs += rows
    if pairs:
        overlap = sum(min(sides[0][node], sides[1][node]) for node in sides[0])
        yield {
            "arm": arm,
            "pairs": pairs,
            "same_node_share": same / pairs,
            "overlap": overlap / pairs,
            "arm_nodes": sorted(sides[0]),
            "control_nodes": sorted(sides[1]),
        }


def confounded(section: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each arm that cannot be told apart from its nodes."""
    kinds = {(tuple(n["gpus"]), tuple(n["drivers"])) for n in section["nodes"]}
    more = " The nodes differ in GPU or driver, too." if len(kinds) > 1 else ""
    for row in section["contrasts"]:
        if row["overlap"] >= BALANCED_SHARE:
            continue
        where = (
            f"Arm {row['arm']} ran on {', '.join(row['arm_nodes'])}, the control on "
            f"{', '.join(row['control_nodes'])}"
        )
        if row["overlap"] == 0:
            yield (
                f"{where}: arm and node are confounded, so a difference may be the node's and "
                f"not the flag's.{more} Deal the cases out so that each node runs every arm "
                "(--shards, a multiple of the number of nodes)."
            )
        else:
            yield (
                f"{where}, but only {row['overlap']:.0%} of its responses are balanced over the "
                f"nodes by the control's: arm and node are partly confounded.{more}"
            )
