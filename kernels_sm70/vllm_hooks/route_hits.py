# SPDX-License-Identifier: Apache-2.0
"""Write this process's route counts to the folder that the harness names.

The counts live on the device (kernels_sm70.counters), so a replayed CUDA graph counts. They are
read by a thread of its own on a stream of its own, which starts only when vLLM has finished its
graph captures; the thread also asks the driver for relaxed capture checks, so that a later
capture elsewhere in the process cannot be broken by the read.
"""

from __future__ import annotations

import atexit
import datetime
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY_ENV = "EVALHARNESS_ROUTE_HITS_DIR"
FORMAT = "evalharness/route_hits/1"
INTERVAL_S = 0.5
ABOVE = 65  # counters.py's ">64" is written as this M
REASONS = ("m", "dtype", "shape", "prefill", "layout", "device")
# The operations' own words. A rejected row is one the expansion emptied (m 0): shown as a route.
_RENAMED = {"m1": "m", "contract": "shape", "geometry": "shape"}
_SPECIAL_HITS = {"sharded_hit": "sharded", "rejected": "rejected"}

Snapshot = Mapping[str, Mapping[str, Mapping[str, int]]]


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What does not change while the process lives.

    `flag_routes`: each flag that is on and the route it asks for. `kernels`: "op.sm_90" -> SHA-256.
    """

    plugin_version: str
    rank: int
    vllm_version: str
    device: str
    flags: Mapping[str, bool]
    flag_routes: Mapping[str, str]
    kernels: Mapping[str, str]


def record(facts: ProcessFacts, counts: Snapshot) -> dict[str, Any]:
    """Return the route_hits document of a counter snapshot (all devices summed).

    Counter names are "<route>.hit" and "<route>.fallback.<reason>".
    """
    routes: dict[tuple[str, int], int] = {}
    fallbacks: dict[tuple[str, str, int], int] = {}
    for names in counts.values():
        for name, by_rows in names.items():
            route, reason = _parse(name)
            for rows, hits in by_rows.items():
                m = int(rows) if rows.isdigit() else ABOVE
                if reason is None:
                    routes[route, m] = routes.get((route, m), 0) + hits
                else:
                    key = (route, reason, m)
                    fallbacks[key] = fallbacks.get(key, 0) + hits
    return {
        "format": FORMAT,
        "plugin": "kernels_sm70",
        "plugin_version": facts.plugin_version,
        "pid": os.getpid(),
        "rank": facts.rank,
        "vllm_version": facts.vllm_version,
        "device": facts.device,
        "flags": dict(facts.flags),
        "flag_routes": dict(facts.flag_routes),
        "kernels": dict(facts.kernels),
        "routes": [{"route": r, "m": m, "hits": n} for (r, m), n in sorted(routes.items())],
        "fallbacks": [
            {"route": r, "reason": why, "m": m, "hits": n}
            for (r, why, m), n in sorted(fallbacks.items())
        ],
        "updated_utc": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _parse(name: str) -> tuple[str, str | None]:
    """Split a counter's name into (route, None for a hit or the fallback's reason)."""
    route, _, rest = name.partition(".")
    kind, *reason = rest.split(".")
    if kind == "hit" and not reason:
        return route, None
    if kind in _SPECIAL_HITS and not reason:
        return f"{route}.{_SPECIAL_HITS[kind]}", None
    if kind == "fallback" and len(reason) == 1:
        why = _RENAMED.get(reason[0], reason[0])
        if why in REASONS:
            return route, why
    raise ValueError(
        f"kernels_sm70: counter {name!r} is neither <route>.hit nor <route>.fallback.<reason>"
    )


class Writer:
    """Keeps one file current: `<pid>.json`, replaced whole, when the counts have changed."""

    def __init__(self, directory: Path, facts: ProcessFacts, read: Callable[[], Snapshot]) -> None:
        self._directory, self._facts, self._read = directory, facts, read
        self._written: Snapshot | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._owner_pid = os.getpid()

    @property
    def path(self) -> Path:
        """The file of this process."""
        return self._directory / f"kernels_sm70-rank{self._facts.rank}-{self._owner_pid}.json"

    def flush(self) -> None:
        """Read the counts and replace the file if they changed since the last time."""
        with self._lock:
            counts = self._read()
            if counts == self._written:
                return
            text = json.dumps(record(self._facts, counts), indent=1) + "\n"
            temporary = self.path.with_suffix(".tmp")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(self.path)
            self._written = counts

    def start(self, prepare_thread: Callable[[], None]) -> None:
        """Write once now (a folder that cannot be written stops the server), then keep current."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self.flush()
        thread = threading.Thread(
            target=self._run, args=(prepare_thread,), name="kernels_sm70-route-hits", daemon=True
        )
        thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Stop the thread and write the last counts. A forked child does nothing."""
        if os.getpid() != self._owner_pid or self._stop.is_set():
            return
        self._stop.set()
        try:
            self.flush()
        except (RuntimeError, OSError) as error:  # the CUDA context may be gone already
            _complain(f"last route counts not written: {error}")

    def _run(self, prepare_thread: Callable[[], None]) -> None:
        prepare_thread()
        while not self._stop.wait(INTERVAL_S):
            try:
                self.flush()
            except (RuntimeError, OSError) as error:
                # Said once and loudly; a stale file then makes the arm incomplete, never admitted.
                _complain(f"route counts no longer written: {error}")
                return


def _complain(text: str) -> None:
    print(f"kernels_sm70: {text}", file=sys.stderr, flush=True)
