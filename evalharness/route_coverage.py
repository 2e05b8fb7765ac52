"""Did the routes that an arm's flags ask for run, in every process that serves it?

A flag that is on proves nothing: the route may be out of contract for every batch. Counts come
from the plugin's own files (formats/route_hits), which start at zero when warm-up is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
KERNEL_FLAGS = "VLLM_SM70_"


def uncovered(
    levels_env: Mapping[str, str], records: Sequence[Record], processes: int
) -> list[str]:
    """Return what is missing, one sentence each; empty where every asked route ran.

    levels_env: the environment that the arm's levels set. records: the launch's route-hit files.
    processes: how many serve the arm (the product of its parallel sizes); each must have reported.
    A variable counts as a flag where it has the kernels' prefix or a record lists it.
    """
    asked = {name for name, value in levels_env.items() if value == "1"}
    known = {name for record in records for name in record["flags"]}
    flags = {name for name in asked if name in known or name.startswith(KERNEL_FLAGS)}
    if not records:
        silent = "was asked for, but no process reported route hits"
        return [f"{name}=1 {silent}" for name in sorted(flags)]
    missing = [text for record in records for text in _missing(record, flags)]
    if flags and len(records) < processes:
        ranks = ", ".join(str(rank) for rank in sorted(record["rank"] for record in records))
        missing.append(
            f"{processes} processes serve the arm, only rank {ranks} reported route hits"
        )
    return missing


def _missing(record: Record, asked: set[str]) -> Iterator[str]:
    ran = {row["route"] for row in record["routes"] if row["hits"] > 0}
    place = f"rank {record['rank']}"
    for flag in sorted(asked):
        route = record.get("flag_routes", {}).get(flag)
        if not record["flags"].get(flag):
            yield f"{place}: {flag}=1 was asked for, the plugin says it is off"
        elif route is None:
            yield f"{place}: {flag} is on, the plugin names no route for it"
        elif route not in ran:
            yield f"{place}: {flag} is on, its route {route} never ran"
