"""What a watcher sees: counts, rates, time left; and nothing that could steer the terminal."""

from __future__ import annotations

import io
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from evalharness import progress
from evalharness.errors import StoreError
from evalharness.factorial.cells import PlannedCell, cell_record
from evalharness.progress import LiveDisplay, PlainDisplay, Tracker, duration, record_line
from evalharness.store import write_json
from evalharness.types import CellKey, Response
from evalharness.watching import read_state, state_table

PLAN = Path(progress.__file__).parent / "formats/examples/plan.json"
FIELDS = ("d", "/v1/completions", "{}", "ok", 200, "{}", "utf-8", None, 1, 2, 3, 1)


def response(tokens: int) -> Response:
    usage = json.dumps({"completion_tokens": tokens})
    return Response("c", 0, *FIELDS, (), usage, "stop", None)  # type: ignore[arg-type]


def cell(arm: str, width: int, cases: int = 4) -> PlannedCell:
    return PlannedCell(CellKey(arm, "gsm8k", "chat", width, 0), cases)


class Clock:
    """A clock that the test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now_s)


def test_time_left_is_learned_per_concurrency(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    tracker = Tracker([[cell("a", 1), cell("a", 4)], [cell("b", 1), cell("b", 4)]])
    assert (tracker.cases, tracker.launches) == (16, 2)
    assert tracker.left_s() is None
    tracker.begin_launch("a")
    tracker.ready(10.0)
    for width, seconds in ((1, 8.0), (4, 4.0)):
        tracker.begin_cell(cell("a", width))
        clock.now_s += seconds
        for _ in range(4):
            tracker.count(response(5))
        assert tracker.tokens_per_s() == pytest.approx(20 / seconds)
        tracker.end_cell()
    # b: a start like a's, four cases at C1 (2 s each) and four at C4 (1 s each)
    assert tracker.left_s() == pytest.approx(10 + 8 + 4)
    assert tracker.done == 8


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0.4, "0 s"), (61, "1 min 01 s"), (3600 * 2 + 60 * 3, "2 h 03 min")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("kind", [PlainDisplay, LiveDisplay])
def test_displays_say_what_happens_and_cannot_be_steered(kind: type[PlainDisplay]) -> None:
    stream = io.StringIO()
    planned = cell("arm", 4, 1)
    record = cell_record(planned.key, 1, state="aborted")
    record.update(reason="bad \x1b]0;owned\x07 [red]text[/red]", rows=1, expected_rows=1)
    with kind(Tracker([[planned]]), stream) as display:
        display.launch("arm", 1)
        display.ready(3.21)
        display.cell(planned)
        display.response(response(7))
        display.cell_done(record)
        display.note("a note \x1b[2J")
    text = stream.getvalue()
    for part in ("starting the server", "ready after 3.2 s", "gsm8k.chat C4 r0: aborted, 1/1"):
        assert part in text
    assert "[red]text[/red]" in text, "markup is text"
    for sequence in ("\x1b]0;owned", "\x1b[2J\n"):
        assert sequence not in text


def test_record_line_says_when_the_client_was_the_limit() -> None:
    record = cell_record(cell("arm", 4).key, 1, state="complete")
    record.update(client_bound=True, wall_s=2.0, output_tokens=50, status_counts={"ok": 4})
    line = record_line(record)
    assert "25 tokens/s" in line
    assert "the client, not the server, was the limit" in line


def write_run(run: Path) -> None:
    plan = json.loads(PLAN.read_text())
    suite = {**next(iter(plan["suites"].values())), "suite": "gsm8k", "modes": ["chat"]}
    plan |= {
        "order": ["control", "aa"],
        "replays": 1,
        "concurrency": [1, 4],
        "suites": {"gsm8k": suite},
    }
    plan.pop("shards", None)
    run.mkdir(parents=True)
    write_json(run / "plan.json", plan)
    for arm, width, state, rows in (
        ("control", 1, "complete", 4),
        ("control", 4, "aborted", 0),
        ("aa", 1, "incomplete", 2),
    ):
        folder = run / "responses" / arm / "001"
        folder.mkdir(parents=True, exist_ok=True)
        key = CellKey(arm, "gsm8k", "chat", width, 0)
        record = cell_record(key, 1, state=state)
        record.update(rows=rows, expected_rows=4, wall_s=2.0, output_tokens=10)
        write_json(folder / f"{key.filename}.cell.json", record)
        (folder / f"{key.filename}.jsonl").write_text("{}\n{}\n{}\n")


def test_watching_reads_and_changes_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run)
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.rglob("*") if p.is_file()}
    state = read_state(run)
    assert (state.total, state.complete) == (4, False)
    console = Console(file=io.StringIO(), width=120)
    console.print(state_table(state))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("1 of 4 cells complete", "4/4 5 tok/s", "3/4 in progress", "2/4 incomplete"):
        assert part in text
    after = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.rglob("*") if p.is_file()}
    assert after == before


def test_watching_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"plan\.json"):
        read_state(tmp_path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("plan.json", []),
        ("plan.json", {"arms": 5}),
        ("plan.json", {"order": 5}),
        ("responses/control/001/gsm8k.chat-c1-r0.cell.json", []),
        ("responses/control/001/gsm8k.chat-c1-r0.cell.json", {"rows": "x"}),
        ("responses/control/001/gsm8k.chat-c1-r0.cell.json", {"state": 5}),
    ],
)
def test_a_damaged_file_is_named_to_the_watcher(tmp_path: Path, name: str, change: Any) -> None:
    run = tmp_path / "run"
    write_run(run)
    path = run / name
    value = {**json.loads(path.read_text()), **change} if change else change
    path.write_text(json.dumps(value))
    with pytest.raises(StoreError, match=re.escape(str(path))):
        read_state(run)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"process {os.getpid()} on {socket.gethostname()} since 2026", "since 2026"),
        (f"process 999999999 on {socket.gethostname()} since 2026", "nobody drives it now"),
        ("process 1 on another-host since 2026", "process 1 on another-host"),
        ("", ""),
    ],
)
def test_who_drives_a_run(said: str, shown: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run)
    (run / ".lock").write_text(said)
    holder = read_state(run).holder
    assert shown in holder and bool(shown) == bool(holder)
