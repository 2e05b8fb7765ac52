# SPDX-License-Identifier: Apache-2.0
"""Route counters, on the device and by M, so that CUDA-graph replays count.

One row a route: column m counts the calls with m rows, the last column every larger M. Kernels get
the row's address and add to it themselves; fallbacks add through a captured tensor operation.
Addresses never change after the first use, as a captured graph keeps them.
"""

from __future__ import annotations

import threading

import torch

COLUMNS = 66  # kRouteCounterColumns in common/memory.cuh
ROWS = 64
OVERFLOW = COLUMNS - 1

_lock = threading.Lock()
_names: dict[str, int] = {}
_tables: dict[torch.device, torch.Tensor] = {}


def row(name: str, device: torch.device) -> torch.Tensor:
    """The int64 [66] counter row of a route ("hyper_connection.hit") or of a fallback reason."""
    key = (
        torch.device(device.type, torch.cuda.current_device())
        if (device.type == "cuda" and device.index is None)
        else device
    )
    with _lock:
        index = _names.setdefault(name, len(_names))
        if index >= ROWS:
            raise RuntimeError(
                f"route counters: {name!r} is the {index + 1}th name, {ROWS} fit; raise ROWS"
            )
        if key not in _tables:
            _tables[key] = torch.zeros(ROWS, COLUMNS, dtype=torch.int64, device=key)
        return _tables[key][index]


def prepare(names: tuple[str, ...], device: torch.device) -> None:
    """Create the rows before any graph capture: an allocation inside a capture would be the
    graph's.
    """
    for name in names:
        row(name, device)


def count(name: str, rows: int, device: torch.device) -> None:
    """Add one to the route's count at this M, as stream work on `device`."""
    row(name, device)[min(rows, OVERFLOW)].add_(1)


def snapshot() -> dict[str, dict[str, dict[str, int]]]:
    """{device: {name: {"4": n, ..., ">64": n}}} of the non-zero counts; synchronises each
    device.
    """
    out: dict[str, dict[str, dict[str, int]]] = {}
    with _lock:
        names, tables = dict(_names), dict(_tables)
    for device, table in tables.items():
        values = table.cpu().tolist()
        out[str(device)] = {
            name: {
                (">64" if m == OVERFLOW else str(m)): n for m, n in enumerate(values[index]) if n
            }
            for name, index in names.items()
        }
    return out


def reset() -> None:
    """Set every counter to zero, keeping the addresses."""
    with _lock:
        tables = list(_tables.values())
    for table in tables:
        table.zero_()
