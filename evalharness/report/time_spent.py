"""Where a run's time went: server starts, requests, and the time in which a server waited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from evalharness.runs import Run, StoredCell

# The bound that the harness holds itself to, inside a cell before its tail.
IDLE_BOUND = 0.02
# Starts are stamped in whole seconds.
STAMP_S = 2.0


def time_rows(run: Run) -> Iterator[dict[str, Any]]:
    """Yield seconds of each part of the run, and its share of all parts.

    "between launches" is from a server's stop to the next one's start, good to a second each;
    it is absent where launches ran beside each other, or no server was started.
    """
    servers = [server for server in run.servers if server["managed"]]
    cells = [*run.cells.values(), *run.aborted]
    parts: dict[str, float] = {
        "server starts": sum(server["ready_s"] or 0.0 for server in servers),
        "requests in flight": sum(cell.record["wall_s"] for cell in cells),
        "between cells": sum(cell.record.get("waited_s") or 0.0 for cell in cells),
        "server stops": sum(_stop_s(server) for server in servers),
    }
    gap_s = _gaps_s(servers, cells)
    if gap_s is not None:
        parts["between launches"] = gap_s
    total_s = sum(parts.values())
    for name, seconds in parts.items():
        share = seconds / total_s if total_s > 0 else None
        yield {"run": run.name, "part": name, "seconds": round(seconds, 1), "share": share}


def idle_row(run: Run) -> dict[str, Any]:
    """Return how long fewer than C requests were in flight in cells, before each one's tail.

    `share` is over the time of all cells that have such a time; the worst cell is named.
    """
    known = [c for c in run.cells.values() if c.record["idle_share"] is not None]
    wall_s = sum(cell.record["wall_s"] for cell in known)
    idle_s = sum(cell.record["idle_share"] * cell.record["wall_s"] for cell in known)
    worst = max(known, key=lambda cell: float(cell.record["idle_share"]), default=None)
    return {
        "run": run.name,
        "cells": len(known),
        "share": idle_s / wall_s if wall_s > 0 else None,
        "worst": worst.record["idle_share"] if worst else None,
        "worst_cell": _name(worst) if worst else None,
        "over_bound": sum(cell.record["idle_share"] > IDLE_BOUND for cell in known),
        "bound": IDLE_BOUND,
    }


def _name(cell: StoredCell) -> str:
    key = cell.key
    return f"{key.arm} {key.suite}.{key.mode} C{key.concurrency}"


def _gaps_s(servers: list[Mapping[str, Any]], cells: list[StoredCell]) -> float | None:
    """Return the seconds between one launch's stop and the next one's start, summed."""
    used_s: dict[int, float] = defaultdict(float)
    for cell in cells:
        used_s[cell.launch] += cell.record["wall_s"] + (cell.record.get("waited_s") or 0.0)
    try:
        starts = sorted((_start_s(server), server["launch"], server) for server in servers)
    except ValueError:
        return None
    total_s, end_s = 0.0, None
    for start_s, launch, server in starts:
        if end_s is not None:
            if start_s - end_s < -STAMP_S:
                return None
            total_s += max(0.0, start_s - end_s)
        end_s = start_s + (server["ready_s"] or 0.0) + used_s[launch] + _stop_s(server)
    return total_s if starts else None


def _start_s(server: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(server["started_utc"]).timestamp()


def _stop_s(server: Mapping[str, Any]) -> float:
    return float((server["stopped"] or {}).get("after_s") or 0.0)
