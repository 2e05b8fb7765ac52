"""What machine is this: host, CPUs, GPUs with their memory and the processes on them."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from evalharness.errors import ServerError

QUERY_TIMEOUT_S = 30.0
MEMORY_BACK_MIB = 512
MEMORY_WAIT_S = 60.0
VISIBLE = "CUDA_VISIBLE_DEVICES"
MAX_INDEX_DIGITS = 4
Card = TypeVar("Card", bound=Mapping[str, Any])
_GPU_FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", "driver_version")
_APP_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")


def _query(kind: str, fields: tuple[str, ...]) -> list[dict[str, str]]:
    done = subprocess.run(
        ["nvidia-smi", f"--query-{kind}={','.join(fields)}", "--format=csv,noheader,nounits"],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=QUERY_TIMEOUT_S,
        check=True,
    )
    rows = [line.split(", ") for line in done.stdout.splitlines() if line.strip()]
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]


def gpus() -> list[dict[str, Any]]:
    """Return every GPU with its memory in MiB and its compute processes; empty without any."""
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        cards, apps = _query("gpu", _GPU_FIELDS), _query("compute-apps", _APP_FIELDS)
    except (OSError, subprocess.SubprocessError):
        return []  # a driver without devices answers with an error: there is no GPU to use
    return [
        {
            "index": place if (index := _number(card["index"])) is None else index,
            "uuid": card["uuid"],
            "name": card["name"],
            "memory_total_mib": _number(card["memory.total"]),
            "memory_used_mib": _number(card["memory.used"]),
            "driver": card["driver_version"],
            "processes": [
                {"pid": app["pid"], "name": app["process_name"], "memory_mib": app["used_memory"]}
                for app in apps
                if app["gpu_uuid"] == card["uuid"]
            ],
        }
        for place, card in enumerate(cards)
    ]


def _number(text: str) -> int | None:
    """Return what nvidia-smi printed, None where it prints `[N/A]`."""
    return int(text) if text.strip().isdecimal() else None


def node_facts(cards: list[dict[str, Any]]) -> dict[str, Any]:
    """Return host name, CPU count, GPU names and driver."""
    return {
        "host": socket.gethostname(),
        "cpus": os.cpu_count() or 0,
        "gpus": [
            {key: card[key] for key in ("index", "uuid", "name", "memory_total_mib")}
            for card in cards
        ],
        "driver": cards[0]["driver"] if cards else None,
    }


def visible(cards: Sequence[Card], devices: str | None) -> list[Card]:
    """Return the cards that a process with this CUDA_VISIBLE_DEVICES uses, in its order.

    devices: indices or (beginnings of) UUIDs with commas between; None is every card. As CUDA
    does, an entry that names no card hides itself and all after it, and a card named twice hides
    all. Indices are nvidia-smi's, which a server's CUDA_DEVICE_ORDER makes CUDA's. A part of a card
    (MIG-...) is no card that can be waited for.
    Source: CUDA C++ Programming Guide, environment variables.
    """
    if devices is None:
        return list(cards)
    seen: list[Card] = []
    for entry in (part.strip() for part in devices.split(",")):
        named = [card for card in cards if _names(entry, card)]
        if len(named) != 1:
            break
        if named[0] in seen:
            return []
        seen += named
    return seen


def _names(entry: str, card: Mapping[str, Any]) -> bool:
    if entry.isdecimal() and len(entry) <= MAX_INDEX_DIGITS:
        return bool(int(entry) == card["index"])
    return entry.startswith("GPU-") and str(card["uuid"]).startswith(entry)


async def wait_for_memory(baseline: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the GPUs once their memory is back to the run's first reading.

    baseline: that reading of the cards that are this launch's; others may be in use.
    Raises ServerError where the last launch's memory does not come back in time: a server
    that starts beside a leftover would serve with another cache size.
    """
    waited_s = 0.0
    before_mib = {card["uuid"]: card["memory_used_mib"] or 0 for card in baseline}
    while True:
        cards = await asyncio.to_thread(gpus)
        held = [
            f"GPU {card['index']}: {card['memory_used_mib']} MiB in use, "
            f"{before_mib[card['uuid']]} before the first launch"
            for card in cards
            if card["uuid"] in before_mib
            and (card["memory_used_mib"] or 0) > before_mib[card["uuid"]] + MEMORY_BACK_MIB
        ]
        if not held:
            return cards
        if waited_s >= MEMORY_WAIT_S:
            raise ServerError(
                f"{'; '.join(held)}: the last launch's memory is not back after "
                f"{MEMORY_WAIT_S:.0f} s; see `nvidia-smi` for who holds it"
            )
        await asyncio.sleep(2.0)
        waited_s += 2.0
