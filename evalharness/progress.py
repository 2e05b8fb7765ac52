"""How a run goes, for whoever watches: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evalharness.factorial.cells import PlannedCell
from evalharness.lenient_json import loads
from evalharness.text import printable
from evalharness.types import Response

ASSUMED_START_S = 45.0
REFRESH_PER_S = 4


class Tracker:
    """Numbers of a run in progress. Times are seconds of the monotonic clock."""

    def __init__(self, launches: Sequence[Sequence[PlannedCell]]) -> None:
        self.cases = sum(cell.cases for cells in launches for cell in cells)
        self.launches = sum(1 for cells in launches if cells)
        self.launch_index = 0
        self.done = 0
        self.cell: PlannedCell | None = None
        self.cell_done = 0
        self.arm = ""
        self.state = "starting"
        self._left: dict[int, int] = defaultdict(int)
        for cells in launches:
            for cell in cells:
                self._left[cell.key.concurrency] += cell.cases
        self._spent: dict[int, tuple[float, int]] = {}
        self._starts_s: list[float] = []
        self._cell_start_s = 0.0
        self._cell_tokens = 0

    def begin_cell(self, planned: PlannedCell) -> None:
        """A cell begins."""
        self.cell, self.cell_done, self._cell_tokens = planned, 0, 0
        self._cell_start_s = time.monotonic()
        self.state = "asking"

    def begin_launch(self, arm: str) -> None:
        """A server is being started."""
        self.arm, self.cell, self.state = arm, None, "starting the server"
        self.launch_index += 1

    def ready(self, seconds: float | None) -> None:
        """The server is ready after so many seconds."""
        self.state = "ready"
        if seconds is not None:
            self._starts_s.append(seconds)

    def count(self, response: Response) -> None:
        """A response came."""
        self.done += 1
        self.cell_done += 1
        usage = loads(response.usage) if response.usage else None
        tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
        self._cell_tokens += tokens if type(tokens) is int else 0
        if self.cell is not None:
            self._left[self.cell.key.concurrency] -= 1

    def end_cell(self) -> None:
        """The cell ended: learn how long a case takes at its concurrency."""
        if self.cell is None or not self.cell_done:
            return
        spent_s, cases = self._spent.get(self.cell.key.concurrency, (0.0, 0))
        spent_s += time.monotonic() - self._cell_start_s
        self._spent[self.cell.key.concurrency] = (spent_s, cases + self.cell_done)

    def tokens_per_s(self) -> float:
        """Output tokens a second of the cell in progress."""
        passed_s = time.monotonic() - self._cell_start_s
        return self._cell_tokens / passed_s if self.cell is not None and passed_s > 0 else 0.0

    def left_s(self) -> float | None:
        """Estimated seconds left, by what cases took at each concurrency; None before any did."""
        spent = dict(self._spent)
        if self.cell is not None and self.cell_done:
            width = self.cell.key.concurrency
            if width not in spent:
                spent[width] = (time.monotonic() - self._cell_start_s, self.cell_done)
        if not spent:
            return None
        mean_s = sum(s for s, _ in spent.values()) / sum(n for _, n in spent.values())
        cases_s = 0.0
        for width, left in self._left.items():
            used_s, cases = spent.get(width, (mean_s, 1))
            cases_s += max(0, left) * used_s / cases
        starts_s = self._starts_s or [ASSUMED_START_S]
        waiting = max(0, self.launches - self.launch_index)
        return cases_s + waiting * sum(starts_s) / len(starts_s)

    def cell_text(self) -> str:
        """Arm, suite, mode and concurrency of the cell in progress."""
        if self.cell is None:
            return printable(f"{self.arm}: {self.state}")
        key = self.cell.key
        return printable(f"{key.arm} · {key.suite}.{key.mode} · C{key.concurrency}")


def duration(seconds: float | None) -> str:
    """Return `1 h 02 min`, `3 min 20 s` or `12 s`; `?` where unknown."""
    if seconds is None:
        return "?"
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def record_line(record: Mapping[str, Any]) -> str:
    """Return one line on a cell that ended."""
    counts = ", ".join(f"{count} {status}" for status, count in record["status_counts"].items())
    rate = record["output_tokens"] / record["wall_s"] if record["wall_s"] else 0.0
    shard = record.get("shard")
    part = f" shard {shard[0]}of{shard[1]}" if shard else ""
    text = (
        f"{record['suite']}.{record['mode']} C{record['concurrency']} "
        f"r{record['replicate']}{part}: "
        f"{record['state']}, {record['rows']}/{record['expected_rows']} ({counts or 'none'}), "
        f"{rate:.0f} tokens/s, {record['wall_s']:.1f} s"
    )
    if record["reason"]:
        text += f" - {record['reason']}"
    if record["client_bound"]:
        text += " - the client, not the server, was the limit"
    return printable(text)


class PlainDisplay:
    """One line per event; for logs and pipes."""

    def __init__(self, tracker: Tracker, stream: TextIO) -> None:
        self._tracker = tracker
        self._stream = stream

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def _line(self, text: str) -> None:
        self._stream.write(f"{printable(text)}\n")
        self._stream.flush()

    def launch(self, arm: str, number: int) -> None:
        """See Display."""
        self._tracker.begin_launch(arm)
        of = f"{self._tracker.launch_index}/{self._tracker.launches}"
        self._line(f"[{of}] arm {arm}: starting the server (launch {number:03d})")

    def ready(self, seconds: float | None) -> None:
        """See Display."""
        self._tracker.ready(seconds)
        self._line(f"  ready after {seconds:.1f} s" if seconds is not None else "  connected")

    def cell(self, planned: PlannedCell) -> None:
        """See Display."""
        self._tracker.begin_cell(planned)

    def response(self, response: Response) -> None:
        """See Display."""
        self._tracker.count(response)

    def cell_done(self, record: Mapping[str, Any]) -> None:
        """See Display."""
        self._tracker.end_cell()
        left = duration(self._tracker.left_s())
        done = f"{self._tracker.done}/{self._tracker.cases}"
        self._line(f"  {record_line(record)}; {done} in all, about {left} left")

    def note(self, text: str) -> None:
        """See Display."""
        self._line(text)


class LiveDisplay(PlainDisplay):
    """A display that redraws itself: bars for the cell and the run, lines above for what ended."""

    def __init__(self, tracker: Tracker, stream: TextIO) -> None:
        super().__init__(tracker, stream)
        self._console = Console(file=stream, markup=False, highlight=False, emoji=False)
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=REFRESH_PER_S,
            transient=True,
        )

    def __enter__(self) -> LiveDisplay:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def _line(self, text: str) -> None:
        self._console.print(Text(printable(text)))

    def _render(self) -> Table:
        tracker = self._tracker
        grid = Table.grid(padding=(0, 1))
        cases = tracker.cell.cases if tracker.cell is not None else 0
        grid.add_row(
            Text(tracker.cell_text(), style="bold"),
            ProgressBar(total=max(1, cases), completed=tracker.cell_done, width=24),
            Text(f"{tracker.cell_done}/{cases}"),
            Text(f"{tracker.tokens_per_s():.0f} tokens/s"),
        )
        grid.add_row(
            Text(f"run · launch {tracker.launch_index}/{tracker.launches}"),
            ProgressBar(total=max(1, tracker.cases), completed=tracker.done, width=24),
            Text(f"{tracker.done}/{tracker.cases}"),
            Text(f"about {duration(tracker.left_s())} left"),
        )
        return grid


def open_display(
    launches: Sequence[Sequence[PlannedCell]], stream: TextIO
) -> PlainDisplay | LiveDisplay:
    """Return a live display for a terminal, plain lines for anything else."""
    kind = LiveDisplay if stream.isatty() else PlainDisplay
    return kind(Tracker(launches), stream)


def open_lines(stream: TextIO) -> PlainDisplay:
    """Return plain lines for launches that run at the same time and say so themselves."""
    return PlainDisplay(Tracker([]), stream)
