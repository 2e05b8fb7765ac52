"""Read a chrome trace of torch's profiler: what ran on a device or, on a CPU build, in operators.

Times become whole nanoseconds. Activities of a CUDA trace are its kernels, copies and memsets;
those of a CPU trace are its operators, each with its own time only (without the operators that
it called). Format: torch.profiler's export_chrome_trace (Kineto).
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from evalharness.errors import StoreError
from evalharness.text import printable

DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
MAX_BYTES = 2 << 30
# vLLM annotates every step of a profiled worker; the second form has roofline figures inside.
STEP = re.compile(
    r"^execute_context_(\d+)\((?:sq)?(\d+)[^)]*\)_generation_(\d+)\((?:sq)?(\d+)[^)]*\)$"
)
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")


class Activity(NamedTuple):
    """Something that took time. `own_ns` is `end_ns - begin_ns` less what nested in it took.

    lane: (device, stream) of a card, (process, thread) of a CPU. in_graph: launched by a CUDA
    graph.
    """

    name: str
    lane: tuple[str, str]
    begin_ns: int
    end_ns: int
    own_ns: int
    in_graph: bool = False


class Step(NamedTuple):
    """One annotated step of the engine: requests and tokens in prefill (context) and decode."""

    begin_ns: int
    context_requests: int
    context_tokens: int
    generation_requests: int
    generation_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace file. `devices` maps a device's number to its name where the trace says it."""

    name: str
    sha256: str
    size_bytes: int
    kind: Literal["cuda", "cpu"]
    activities: tuple[Activity, ...]
    steps: tuple[Step, ...]
    devices: Mapping[str, str]
    vllm_version: str | None


def read_trace(path: Path) -> Trace:
    """Read one file, plain or gzip. Raises StoreError where it is no trace or nothing ran."""
    raw = _read(path)
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _error(path, f"not JSON ({error})") from error
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        raise _error(path, "no list traceEvents")
    try:
        complete = [one for one in events if isinstance(one, dict) and one.get("ph") == "X"]
        kind, activities = _activities(complete)
        steps = tuple(sorted(_steps(complete)))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise _error(path, f"an event is malformed ({type(error).__name__}: {error})") from error
    if not activities:
        raise _error(path, "neither kernels nor operators in it: nothing ran while it was recorded")
    version = document.get("vllm_version")
    return Trace(
        name=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size_bytes=path.stat().st_size,
        kind=kind,
        activities=activities,
        steps=steps,
        devices=_devices(document.get("deviceProperties")),
        vllm_version=version if isinstance(version, str) else None,
    )


def _error(path: Path, what: str) -> StoreError:
    return StoreError(
        f"{path}: {printable(what)}; expected a chrome trace that torch's profiler wrote "
        "(.pt.trace.json or .pt.trace.json.gz)"
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            packed = stream.read(2) == b"\x1f\x8b"
            stream.seek(0)
            if not packed:
                return _bounded(path, stream.read(MAX_BYTES + 1))
            with gzip.open(stream) as plain:
                return _bounded(path, plain.read(MAX_BYTES + 1))
    except (OSError, EOFError, zlib.error) as error:
        raise _error(path, f"cannot be read ({error})") from error


def _bounded(path: Path, raw: bytes) -> bytes:
    if len(raw) > MAX_BYTES:
        raise _error(path, f"over {MAX_BYTES} bytes; record fewer steps")
    return raw


def _devices(found: Any) -> dict[str, str]:
    if not isinstance(found, list):
        return {}
    return {
        str(one["id"]): str(one["name"])
        for one in found
        if isinstance(one, dict) and "id" in one and "name" in one
    }


def _ns(event: Mapping[str, Any]) -> tuple[int, int]:
    begin = round(event["ts"] * 1000)
    length = round(event.get("dur", 0) * 1000)
    if length < 0:
        raise ValueError(f"duration {event['dur']} of {event.get('name')!r}")
    return begin, begin + length


def _activities(
    events: Iterable[Mapping[str, Any]],
) -> tuple[Literal["cuda", "cpu"], tuple[Activity, ...]]:
    graphs: set[Any] = set()
    device, operators = [], []
    for event in events:
        category = event.get("cat")
        if category in DEVICE_CATEGORIES:
            device.append(event)
        elif category == "cpu_op":
            operators.append(event)
        elif category in ("cuda_runtime", "cuda_driver") and _GRAPH_LAUNCH.search(event["name"]):
            graphs.add(event["args"]["correlation"])
    if device:
        return "cuda", tuple(sorted(_device_activity(one, graphs) for one in device))
    return "cpu", tuple(_own_times(operators))


def _device_activity(event: Mapping[str, Any], graphs: set[Any]) -> Activity:
    begin, end = _ns(event)
    args = event["args"]
    lane = (str(args["device"]), str(args["stream"]))
    in_graph = args.get("correlation") in graphs
    return Activity(str(event["name"]), lane, begin, end, end - begin, in_graph)


def _own_times(events: Iterable[Mapping[str, Any]]) -> Iterator[Activity]:
    """Yield operators with their own time: a caller's time less that of what it called.

    Operators of one thread nest. Where rounding lets a callee end after its caller, it is cut.
    """
    lanes: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
    for event in events:
        begin, end = _ns(event)
        lane = (str(event["pid"]), str(event["tid"]))
        lanes.setdefault(lane, []).append((begin, end, str(event["name"])))
    for lane, found in sorted(lanes.items()):
        found.sort(key=lambda one: (one[0], -one[1]))
        open_calls: list[list[Any]] = []  # begin, end, name, time of callees
        for begin, end, name in found:
            while open_calls and open_calls[-1][1] <= begin:
                yield _closed(lane, open_calls.pop())
            if open_calls:
                end = min(end, open_calls[-1][1])
                open_calls[-1][3] += end - begin
            open_calls.append([begin, end, name, 0])
        while open_calls:
            yield _closed(lane, open_calls.pop())


def _closed(lane: tuple[str, str], call: list[Any]) -> Activity:
    begin, end, name, callees = call
    return Activity(name, lane, begin, end, end - begin - callees)


def _steps(events: Iterable[Mapping[str, Any]]) -> Iterator[Step]:
    """Yield the annotated steps, from the host's side; from the card's where the host has none."""
    for category in ("user_annotation", "gpu_user_annotation"):
        found = [
            (event, match)
            for event in events
            if event.get("cat") == category and (match := STEP.match(str(event["name"])))
        ]
        if found:
            for event, match in found:
                context, context_tokens, generation, tokens = map(int, match.groups())
                yield Step(_ns(event)[0], context, context_tokens, generation, tokens)
            return
