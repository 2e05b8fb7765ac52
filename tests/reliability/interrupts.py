"""Ctrl-C once and twice, SIGTERM, a closed terminal, a suspended process, a killed server."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.fake_run import FakeFactorial, processes_of
from tests.reliability.going_on import Snapshot, check_nobody_left, go_on, new_work, undisturbed
from tests.reliability.tally import Tally

EXIT_LIMIT_S = 180.0  # a frozen server: timeouts, a last question, and that for every launch


@dataclass(frozen=True)
class Kind:
    """A disturbance: signals to the harness, or to its server, and the exit codes it may have.

    0 is among them where the run may be over before the signal comes; 130 is Ctrl-C outside the
    run's loop, before the first request or in the report. A second Ctrl-C may reach the process
    while it ends, and then ends it as the signal does: a shell shows that as 130 too.
    """

    name: str
    signals: Sequence[signal.Signals]
    codes: Sequence[int]
    server: bool = False
    pause_s: float = 0.1


KINDS = (
    Kind("Ctrl-C once", (signal.SIGINT,), (12, 130, 0)),
    Kind("Ctrl-C twice", (signal.SIGINT, signal.SIGINT), (130, 12, 0, -signal.SIGINT)),
    Kind("SIGTERM", (signal.SIGTERM,), (12, -signal.SIGTERM, 0)),
    Kind("terminal closed (SIGHUP)", (signal.SIGHUP,), (-signal.SIGHUP, 0)),
    Kind("suspended for 2 s (SIGSTOP)", (signal.SIGSTOP, signal.SIGCONT), (0,), pause_s=2.0),
    Kind("server killed (SIGKILL)", (signal.SIGKILL,), (3, 0), server=True),
    Kind("server hangs (SIGSTOP)", (signal.SIGSTOP,), (3, 0), server=True),
)


def servers_of(work: FakeFactorial) -> list[int]:
    """Return the ids of the run's server processes."""
    found = []
    for pid in processes_of(work.run):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"fake_server.py" in command:
            found.append(pid)
    return found


def _send(process: subprocess.Popen[str], work: FakeFactorial, kind: Kind) -> None:
    for number in kind.signals:
        if process.poll() is not None:
            return
        targets = servers_of(work) if kind.server else [process.pid]
        for pid in targets:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        time.sleep(kind.pause_s)


def disturb(work: FakeFactorial, kind: Kind, moment: int, delay_s: float) -> tuple[int, str]:
    """Start the run, disturb it at that request and delay, and wait for its end."""
    process = work.start()
    while len(work.asked()) < moment and process.poll() is None:
        time.sleep(0.005)
    time.sleep(delay_s)
    _send(process, work, kind)
    try:
        output, _ = process.communicate(timeout=EXIT_LIMIT_S)
    finally:
        process.kill()
    return process.returncode, output


def one(folder: Path, kind: Kind, expected: FakeFactorial, rng: random.Random) -> Tally:
    """One disturbance at a random moment; then the same command again."""
    tally = Tally(f"{kind.name}, then the same command", times=1)
    work = new_work(folder)
    moment = rng.randint(0, len(expected.asked()))
    code, output = disturb(work, kind, moment, rng.random() ** 2 * 0.4)
    tally.check(code in kind.codes, f"exit {code} at request {moment}: {output[-300:]}")
    tally.check("Traceback" not in output, f"a traceback: {output[-900:]}")
    if code == 3:
        tally.check("missing: " in output, f"no cell is named: {output[-300:]}")
    check_nobody_left(work, tally)
    go_on(work, Snapshot(work), expected, tally)
    return tally


def interrupts(folder: Path, times: int, seed: int, kinds: Sequence[Kind] = KINDS) -> list[Tally]:
    """Disturb a run in every way so many times."""
    rng = random.Random(seed)
    expected = undisturbed(folder / "expected")
    return [
        one(folder / f"{place}-{number}", kind, expected, rng)
        for number in range(times)
        for place, kind in enumerate(kinds)
    ]
