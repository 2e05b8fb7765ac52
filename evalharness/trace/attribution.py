"""Sum a trace's activities: by family, by kernel; envelope, busy time, overlap and gaps.

For each device (a CPU is one device):

    envelope = last end - first begin          kernels = sum of all activities' own times
    busy     = length of the activities' union  overlap = kernels - busy
    gaps     = envelope - busy                  so kernels - overlap + gaps = envelope

Overlap is time counted more than once because streams, or dependent launches of one stream, ran
side by side. A CPU operator's own time excludes its callees, so one thread has no overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from evalharness.trace.chrome import Activity, Trace
from evalharness.trace.families import UNKNOWN, Families

LARGEST_GAPS = 5


@dataclass(frozen=True, slots=True)
class Sum:
    """Time and number of the activities of one family or of one kernel."""

    name: str
    family: str
    calls: int
    time_ns: int
    in_graph_ns: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Time in which nothing ran, between the activity that ended last and the next one."""

    length_ns: int
    after: str
    before: str


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """One device of one trace file. Families and kernels by falling time; names as recorded."""

    file: str
    device: str
    device_name: str | None
    lanes: int
    activities: int
    envelope_ns: int
    busy_ns: int
    kernels_ns: int
    in_graph_ns: int
    gaps: int
    largest_gaps: tuple[Gap, ...]
    families: tuple[Sum, ...]
    kernels: tuple[Sum, ...]

    @property
    def overlap_ns(self) -> int:
        """Time counted more than once."""
        return self.kernels_ns - self.busy_ns

    @property
    def gap_ns(self) -> int:
        """Time within the envelope in which nothing ran."""
        return self.envelope_ns - self.busy_ns

    @property
    def unknown(self) -> tuple[Sum, ...]:
        """The kernels that are in no family."""
        return tuple(one for one in self.kernels if one.family == UNKNOWN)


def attribute(trace: Trace, families: Families) -> tuple[DeviceTime, ...]:
    """Return one attribution per device of the trace, in the devices' order."""
    by_device: dict[str, list[Activity]] = {}
    for activity in trace.activities:
        # All threads of a CPU trace share one machine; a card's streams share one card.
        device = activity.lane[0] if trace.kind == "cuda" else "cpu"
        by_device.setdefault(device, []).append(activity)
    return tuple(
        _device(trace, device, activities, families)
        for device, activities in sorted(by_device.items())
    )


def _device(
    trace: Trace, device: str, activities: Sequence[Activity], families: Families
) -> DeviceTime:
    busy_ns, gaps = busy_and_gaps(activities)
    kernels = _sums(activities, lambda one: one.name, families)
    return DeviceTime(
        file=trace.name,
        device=device,
        device_name=trace.devices.get(device),
        lanes=len({one.lane for one in activities}),
        activities=len(activities),
        envelope_ns=max(one.end_ns for one in activities) - min(one.begin_ns for one in activities),
        busy_ns=busy_ns,
        kernels_ns=sum(one.own_ns for one in activities),
        in_graph_ns=sum(one.own_ns for one in activities if one.in_graph),
        gaps=len(gaps),
        largest_gaps=tuple(sorted(gaps, key=lambda gap: -gap.length_ns)[:LARGEST_GAPS]),
        families=_sums(activities, lambda one: families.of(one.name), families),
        kernels=kernels,
    )


def _sums(
    activities: Iterable[Activity], name_of: Callable[[Activity], str], families: Families
) -> tuple[Sum, ...]:
    found: dict[str, list[int]] = {}
    family: dict[str, str] = {}
    for one in activities:
        name = name_of(one)
        sums = found.setdefault(name, [0, 0, 0])
        sums[0] += 1
        sums[1] += one.own_ns
        sums[2] += one.own_ns if one.in_graph else 0
        if name not in family:
            family[name] = families.of(one.name)
    rows = [Sum(name, family[name], *sums) for name, sums in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.time_ns, row.name)))


def busy_and_gaps(activities: Iterable[Activity]) -> tuple[int, list[Gap]]:
    """Return the length of the activities' union, and what lies between its pieces."""
    busy_ns = 0
    gaps: list[Gap] = []
    last: Activity | None = None
    for one in sorted(activities, key=lambda one: (one.begin_ns, one.end_ns)):
        if last is None:
            busy_ns += one.end_ns - one.begin_ns
            last = one
            continue
        if one.begin_ns > last.end_ns:
            gaps.append(Gap(one.begin_ns - last.end_ns, last.name, one.name))
        busy_ns += max(0, one.end_ns - max(one.begin_ns, last.end_ns))
        if one.end_ns >= last.end_ns:
            last = one
    return busy_ns, gaps
