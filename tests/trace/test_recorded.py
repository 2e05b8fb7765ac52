"""A trace recorded on an H200 (tools/record_cuda_trace.py): sums against the profiler's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalharness.trace.attribution import DeviceTime, attribute
from evalharness.trace.chrome import Trace, read_trace
from evalharness.trace.families import default_families
from evalharness.trace.purity import judge

FOLDER = Path(__file__).parents[1] / "fixtures" / "trace"
TRACE, FACTS = FOLDER / "h200-decode.json.gz", FOLDER / "h200-decode.facts.json"


@pytest.fixture(scope="module")
def recorded() -> tuple[Trace, DeviceTime, dict[str, Any]]:
    if not TRACE.is_file():
        pytest.skip(f"{TRACE.name} is not there: record it on a card, tools/record_cuda_trace.py")
    trace = read_trace(TRACE)
    (device,) = attribute(trace, default_families())
    return trace, device, json.loads(FACTS.read_text())


def test_every_kernel_has_the_profilers_own_time(
    recorded: tuple[Trace, DeviceTime, dict[str, Any]],
) -> None:
    _, device, facts = recorded
    found = {one.name: (one.calls, one.time_ns / 1000) for one in device.kernels}
    own = {row["name"]: (row["calls"], row["us"]) for row in facts["totals"]}
    assert found.keys() == own.keys()
    for name, (calls, us) in own.items():
        assert found[name][0] == calls, name
        # The profiler's table has microseconds with three decimals, rounded per event.
        assert found[name][1] == pytest.approx(us, abs=0.002 * calls), name


def test_steps_graphs_and_our_kernels_are_in_it(
    recorded: tuple[Trace, DeviceTime, dict[str, Any]],
) -> None:
    trace, device, facts = recorded
    assert "H200" in facts["device"] and trace.kind == "cuda"
    assert len(trace.steps) == facts["eager_steps"] + facts["graph_replays"]
    assert judge([trace], concurrency=16).pure is True
    assert judge([trace], concurrency=8).pure is False
    families = {one.name: one.time_ns for one in device.families}
    assert {"gemm", "norm", "sampling", "copy", "attention"} <= families.keys()
    ran = [name for name, said in facts["operations"].items() if said == "ran"]
    assert bool(ran) == ("our kernels" in families)
    if facts["graph_replays"]:
        assert 0 < device.in_graph_ns < device.kernels_ns


def test_the_identities_hold(recorded: tuple[Trace, DeviceTime, dict[str, Any]]) -> None:
    _, device, _ = recorded
    assert device.kernels_ns - device.overlap_ns + device.gap_ns == device.envelope_ns
    assert sum(one.time_ns for one in device.families) == device.kernels_ns
    assert device.overlap_ns >= 0 and device.gap_ns >= 0
