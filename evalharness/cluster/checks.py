"""What is refused before anything starts: too few resources, other code, arms that cannot move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalharness.arms import ArmsFile
from evalharness.arms.parallel import processes_of
from evalharness.cluster.placing import room
from evalharness.cluster.values import Node
from evalharness.errors import HarnessError


def refuse_endpoints(file: ArmsFile) -> None:
    """Raise HarnessError where an arm is a server that somebody else runs."""
    names = [arm.name for arm in file.arms if arm.endpoint]
    if names:
        raise HarnessError(
            f"{file.name}: arms {', '.join(names)} are endpoints: one server, wherever it is asked "
            "from, so several launches at once would change its concurrency; use --executor local"
        )


def usable_nodes(
    nodes: Sequence[Node], demand: Mapping[str, float], file: ArmsFile
) -> tuple[dict[str, int], list[str]]:
    """Return how many launches each node holds at once, and a note on each node left out.

    demand: what one launch asks for; empty for one launch a node. Raises HarnessError, naming
    every node and what it lacks, where none can hold one.
    """
    refuse_too_few_gpus(file, demand)
    whole = whole_demand(demand)
    slots: dict[str, int] = {}
    lacking: list[str] = []
    for node in nodes:
        if "GPU" not in demand and "CPU" not in demand and node.resources.get("GPU", 0) >= 1:
            raise HarnessError(
                f"node {node.name} has {node.resources['GPU']:g} GPUs, and Ray hides them from a "
                "launch that asks for none; give --resources GPU=N (the arms' tensor-parallel "
                "size), or --resources CPU=N to serve without them"
            )
        held, lack = room(node.resources, whole, exclusive=not demand)
        if held:
            slots[node.name] = held
        else:
            lacking.append(f"node {node.name} has {lack}")
    if not slots:
        asked = ", ".join(f"{name}={amount:g}" for name, amount in whole.items())
        raise HarnessError(
            f"no node can hold a launch that asks for {asked}: {'; '.join(lacking) or 'no nodes'}; "
            "lower --resources, or add nodes"
        )
    return slots, [f"left out: {text}" for text in lacking]


def whole_demand(demand: Mapping[str, float]) -> dict[str, float]:
    """Return all that a launch asks for: Ray wants a CPU for a task that names none."""
    return {**demand, "CPU": demand.get("CPU", 1)}


def refuse_too_few_gpus(file: ArmsFile, demand: Mapping[str, float]) -> None:
    """Raise HarnessError where an arm's own arguments want more GPUs than a launch gets."""
    given = demand.get("GPU", 0)
    short = [
        (arm.name, count) for arm in file.arms if (count := processes_of(arm.argv)) > max(given, 1)
    ]
    if short and given:
        name, count = short[0]
        raise HarnessError(
            f"{file.name}: arm {name} is parallel over {count} GPUs, --resources asks for "
            f"GPU={given:g}; give --resources GPU={count}"
        )


def refuse_other_code(found: Mapping[str, Mapping[str, str]], own: Mapping[str, str]) -> None:
    """Raise HarnessError naming each node whose installation is not the driver's."""
    problems = []
    for name, identity in found.items():
        if "error" in identity:
            problems.append(f"node {name}: evalharness is not there ({identity['error']})")
        elif identity["version"] != own["version"]:
            problems.append(
                f"node {name}: evalharness {identity['version']}, here {own['version']}"
            )
        elif identity["sources"] != own["sources"]:
            problems.append(
                f"node {name}: evalharness {own['version']} with other sources "
                f"({identity['sources'][:12]}, here {own['sources'][:12]})"
            )
    if problems:
        listed = "\n  ".join(problems)
        raise HarnessError(f"{listed}\ninstall the same evalharness on every node")
