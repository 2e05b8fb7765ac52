# SPDX-License-Identifier: Apache-2.0
"""Time the candidates of a case against each other by CUDA-graph replay.

A case prepares `SETS` sets of inputs and weights, so that a weight set has left the L2 before it is
used again. One graph of a candidate runs all sets once. Graphs of all candidates of a case are
replayed in turn, round after round, so that clocks and neighbours weigh on all alike. The figure is
the median over rounds of (time of one replay) / SETS.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

import torch

from kernels_sm70.gpu_checks import capture

SETS = 16
ROUNDS = 25
WARM_REPLAYS = 3
DATASHEET_BYTES_PER_S = {"NVIDIA H200": 4.8e12, "Tesla V100-SXM2-32GB": 0.9e12}

Runner = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Absent:
    """A candidate that cannot run here, and why; printed and stored, never dropped."""

    reason: str


@dataclass(frozen=True, slots=True)
class Target:
    """A speed target of a candidate: at most `max_floors` times its floor, at least `min_speedup`
    over `baseline`.
    """

    max_floors: float | None = None
    min_speedup: float | None = None
    baseline: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One shape of one operation.

    `prepare(device, sets)` returns the candidates by name; each is called with a set index and must
    only enqueue work. `bytes` is the floor: what must move at least once.
    """

    operation: str
    label: str
    bytes: int
    prepare: Callable[[torch.device, int], Mapping[str, Runner | Absent]]
    targets: Mapping[str, Target] = field(default_factory=dict)


@dataclass(slots=True)
class Row:
    """One candidate's result; times in microseconds."""

    operation: str
    case: str
    candidate: str
    us: float | None
    us_low: float | None
    us_high: float | None
    bytes: int
    floor_us: float
    floors: float | None
    floor_fraction: float | None
    baseline: str | None = None
    speedup: float | None = None
    target: str = ""
    met: bool | None = None
    note: str = ""

    def as_dict(self) -> dict[str, object]:
        """The row for the results file."""
        return asdict(self)


def measure_copy_bytes_per_s(device: torch.device) -> float:
    """Bytes read plus written per second of a 2 GiB device-to-device copy: the measured ceiling."""
    source = torch.randint(0, 255, (2**30,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(12):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e-3)
    return float(2 * source.numel() / statistics.median(times))


def run_case(
    case: Case, device: torch.device, *, bytes_per_s: float, rounds: int = ROUNDS
) -> list[Row]:
    """Time one case; rows come in the order the candidates were given."""
    candidates = case.prepare(device, SETS)
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    notes: dict[str, str] = {}
    for name, runner in candidates.items():
        if isinstance(runner, Absent):
            notes[name] = runner.reason
        else:
            graphs[name] = _captured(runner)
    times = _alternate(graphs, rounds)
    floor_us = case.bytes / bytes_per_s * 1e6
    rows = [_row(case, name, times.get(name), floor_us, notes.get(name, "")) for name in candidates]
    _compare(case, rows)
    return rows


def _captured(runner: Runner) -> torch.cuda.CUDAGraph:
    def run_all() -> None:
        for index in range(SETS):
            runner(index)

    graph = capture(run_all)
    for _ in range(WARM_REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    return graph


def _alternate(graphs: Mapping[str, torch.cuda.CUDAGraph], rounds: int) -> dict[str, list[float]]:
    """Microseconds per set of each replay, by candidate."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for round_index in range(rounds):
        names = list(graphs)
        if round_index % 2:
            names.reverse()  # neither candidate always follows the other
        for name in names:
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            graphs[name].replay()  # brings the card back to work after the last synchronise
            start.record()
            graphs[name].replay()
            stop.record()
            stop.synchronize()
            times[name].append(start.elapsed_time(stop) * 1e3 / SETS)
    return times


def _row(case: Case, name: str, times: list[float] | None, floor_us: float, note: str) -> Row:
    if times is None:
        return Row(
            case.operation,
            case.label,
            name,
            None,
            None,
            None,
            case.bytes,
            floor_us,
            None,
            None,
            note=note,
        )
    ordered = sorted(times)
    median = statistics.median(ordered)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    return Row(
        case.operation,
        case.label,
        name,
        median,
        low,
        high,
        case.bytes,
        floor_us,
        median / floor_us,
        floor_us / median,
    )


def _compare(case: Case, rows: list[Row]) -> None:
    by_name = {row.candidate: row for row in rows}
    for name, target in case.targets.items():
        row = by_name[name]
        row.target = " and ".join(_words(target))
        row.baseline = target.baseline
        if row.us is None:
            continue
        met = True
        if target.max_floors is not None and row.floors is not None:
            met = row.floors <= target.max_floors
        if target.min_speedup is not None and target.baseline is not None:
            other = by_name[target.baseline]
            if other.us is None:
                row.note, row.met = f"baseline absent: {other.note}", None
                continue
            row.speedup = other.us / row.us
            met = met and row.speedup >= target.min_speedup
        row.met = met


def _words(target: Target) -> list[str]:
    words = []
    if target.max_floors is not None:
        words.append(f"<= {target.max_floors:.1f} floors")
    if target.min_speedup is not None:
        words.append(f">= {target.min_speedup:.2f}x {target.baseline}")
    return words


def table(rows: list[Row]) -> str:
    """A Markdown table of all rows, losses and absences included."""
    lines = [
        "| operation | case | candidate | us (p10 to p90) | MB | floor us | x floor | fraction | "
        "speed-up | target | met |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.us is None:
            timing, floors, fraction = f"absent: {row.note}", "", ""
        else:
            timing = f"{row.us:.2f} ({row.us_low:.2f} to {row.us_high:.2f})"
            floors, fraction = f"{row.floors:.2f}", f"{row.floor_fraction:.2f}"
        speed = "" if row.speedup is None else f"{row.speedup:.2f}x {row.baseline}"
        met = "" if row.met is None else ("yes" if row.met else "no")
        lines.append(
            f"| {row.operation} | {row.case} | {row.candidate} | {timing} | "
            f"{row.bytes / 1e6:.3f} | {row.floor_us:.3f} | {floors} | {fraction} | {speed} | "
            f"{row.target} | {met} |"
        )
    return "\n".join(lines)
