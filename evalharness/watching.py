"""The state of a run as its directory shows it, without touching it."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from evalharness.checked_json import read_checked
from evalharness.errors import StoreError
from evalharness.text import printable

Place = tuple[str, str, str, int]  # arm, suite, mode, concurrency


@dataclass(frozen=True, slots=True)
class CellView:
    """One cell in one launch. `growing` says that its file changed within the last minute."""

    place: Place
    shard: str
    state: str
    rows: int
    expected: int
    tokens_per_s: float
    growing: bool


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run directory shows."""

    name: str
    plan: Mapping[str, Any]
    cells: tuple[CellView, ...]
    holder: str

    @property
    def total(self) -> int:
        """Cells that the plan asks for."""
        launches = len({*self.plan["order"]}) * self.plan["replays"]
        shards = self.plan.get("shards", {"cases": {}})["cases"]
        modes = sum(
            len(suite["modes"]) * len(shards.get(name, [0]))
            for name, suite in self.plan["suites"].items()
        )
        return int(launches * modes * len(self.plan["concurrency"]))

    @property
    def complete(self) -> bool:
        """True once every planned cell is complete."""
        return sum(cell.state == "complete" for cell in self.cells) >= self.total


def read_state(run: Path) -> RunState:
    """Read the state. Raises StoreError where there is no run, or a file of it is damaged."""
    plan = read_checked(run / "plan.json", "plan", error=StoreError)
    return RunState(str(run), plan, tuple(_cells(run)), _holder(run / ".lock"))


def _holder(lock: Path) -> str:
    """Return who drives the run by its lock file; "" where that process is gone from this host."""
    if not lock.is_file():
        return ""
    text = lock.read_text("utf-8", "replace").strip()
    said = re.match(r"process (\d{1,9}) on (\S+)", text)
    if said and said[2] == socket.gethostname() and not Path("/proc", said[1]).exists():
        return "nobody drives it now"
    return text


def _cells(run: Path) -> Iterator[CellView]:
    for path in sorted((run / "responses").glob("*/*/*.cell.json")):
        record = _record(path, path.stat().st_mtime_ns)
        responses = path.with_name(path.name.removesuffix(".cell.json") + ".jsonl")
        rows, growing = record["rows"], False
        if record["state"] == "aborted" and record["responses_sha256"] is None:
            growing = responses.exists() and time.time() - responses.stat().st_mtime < 60
            rows = _lines(responses)
        wall_s = record["wall_s"]
        yield CellView(
            (record["arm"], record["suite"], record["mode"], record["concurrency"]),
            str(record.get("shard", "")),
            "in progress" if growing else record["state"],
            rows,
            record["expected_rows"],
            record["output_tokens"] / wall_s if wall_s else 0.0,
            growing,
        )


@lru_cache(maxsize=1 << 14)
def _record(path: Path, _written_ns: int) -> Mapping[str, Any]:
    """Return a cell record; kept as long as its file is not written again."""
    return read_checked(path, "cell", error=StoreError)


def _lines(path: Path) -> int:
    try:
        with path.open("rb") as stream:
            return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))
    except OSError:
        return 0


def state_table(state: RunState) -> Table:
    """Return arms and suites down, concurrency across: rows done, and the newest state."""
    widths = state.plan["concurrency"]
    done = sum(cell.state == "complete" for cell in state.cells)
    title = f"{state.name}: {done} of {state.total} cells complete"
    table = Table(title=printable(f"{title}\n{state.holder}"), title_justify="left", box=None)
    for name in ("arm", "suite", *(f"C{width}" for width in widths)):
        table.add_column(name)
    newest: dict[Place, dict[str, CellView]] = {}
    for cell in state.cells:
        shards = newest.setdefault(cell.place, {})
        known = shards.get(cell.shard)
        if known is None or known.state != "complete":
            shards[cell.shard] = cell
    for arm in dict.fromkeys(state.plan["order"]):
        for suite, entry in state.plan["suites"].items():
            for mode in entry["modes"]:
                views = [newest.get((arm, suite, mode, width)) for width in widths]
                row = [Text(printable(arm)), Text(printable(f"{suite}.{mode}"))]
                table.add_row(*row, *(_view(view) for view in views))
    return table


def _view(shards: Mapping[str, CellView] | None) -> Text:
    if shards is None:
        return Text("-", style="dim")
    view = _together(list(shards.values()))
    styles = {"complete": "green", "in progress": "bold", "aborted": "red", "incomplete": "magenta"}
    text = f"{view.rows}/{view.expected}"
    if view.state == "complete":
        text += f" {view.tokens_per_s:.0f} tok/s"
    else:
        text += f" {view.state}"
    return Text(text, style=styles.get(view.state, ""))


def _together(shards: Sequence[CellView]) -> CellView:
    """Return one view of a cell's shards: sums, and the state of one that is not complete."""
    shown = next((view for view in shards if view.state != "complete"), shards[0])
    return replace(
        shown,
        rows=sum(view.rows for view in shards),
        expected=sum(view.expected for view in shards),
        tokens_per_s=sum(view.tokens_per_s for view in shards),
    )
