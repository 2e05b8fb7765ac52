# SPDX-License-Identifier: Apache-2.0
"""Baselines that may be missing on a host, or not run there: present and agreeing, or absent with
the reason."""

from __future__ import annotations

from collections.abc import Callable

from kernels_sm70.bench.harness import Absent, Runner

REASON_LENGTH = 200


def baseline(load: Callable[[], Runner], *, agrees: Callable[[], str | None]) -> Runner | Absent:
    """The runner that `load` returns, if it runs on set 0 and then `agrees` returns None.

    `load` imports what it needs. `agrees` compares what the runner left with what our kernel gives
    and says what differs: a baseline that computes something else is no baseline.
    """
    try:
        runner = load()
        runner(0)
        difference = agrees()
    except Exception as error:  # noqa: BLE001 - whatever stops the baseline is printed as its reason
        return Absent(f"it does not run here: {error!r}"[:REASON_LENGTH])
    return runner if difference is None else Absent(f"it computes something else: {difference}")
