"""No orphan, ever: the server and all it started end with the harness, however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evalharness.errors import ServerError
from evalharness.server.process import ServerProcess, kill_leftovers, tail

FAMILY = (
    "import os, subprocess, sys, time\n"
    "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "print(os.getpid(), child.pid, flush=True)\n"
    "import signal\n"
    "if len(sys.argv) > 1: signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "time.sleep(600)\n"
)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def pids_of(log: Path) -> list[int]:
    for _ in range(400):
        words = log.read_text().split() if log.exists() else []
        if len(words) >= 2:
            return [int(words[0]), int(words[1])]
        await asyncio.sleep(0.05)
    raise AssertionError("the process did not start")


def wait_gone(pids: list[int]) -> None:
    end_s = time.monotonic() + 30
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < end_s, "orphans are left"
        time.sleep(0.05)


async def start(log: Path, *args: str) -> ServerProcess:
    return await ServerProcess.start([sys.executable, "-c", FAMILY, *args], dict(os.environ), log)


async def test_stop_ends_the_whole_family(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    process = await start(log)
    pids = await pids_of(log)
    assert process.pid == pids[0]
    ending = await process.stop()
    assert ending["signal"] == "SIGTERM"
    assert not any(alive(pid) for pid in pids)


async def test_at_once_is_at_once(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    process = await start(log, "stubborn")
    pids = await pids_of(log)
    start_s = time.monotonic()
    ending = await process.stop(at_once=True)
    assert ending["signal"] == "SIGKILL"
    assert time.monotonic() - start_s < 5
    assert not any(alive(pid) for pid in pids)


async def test_an_end_of_its_own_is_noticed(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    argv = [sys.executable, "-c", "print('bad \\x1b[31m flag'); raise SystemExit(7)"]
    process = await ServerProcess.start(argv, dict(os.environ), log)
    await asyncio.wait_for(process.exited.wait(), 20)
    assert (await process.stop())["exit_code"] == 7
    assert tail(log) == "  | bad \\x1b[31m flag"


async def test_a_killed_warden_takes_the_server_along(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    process = await start(log)
    pids = await pids_of(log)
    os.kill(process._warden.pid, signal.SIGKILL)
    await asyncio.wait_for(process.exited.wait(), 20)
    assert (await process.stop())["signal"] == "SIGKILL"
    wait_gone([pids[0]])
    os.kill(pids[1], signal.SIGKILL)  # left its group by a session of its own; see kill_leftovers


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="could not be started: /no/such/python"):
        await ServerProcess.start(["/no/such/python"], {}, tmp_path / "server.log")


def test_kill_9_of_the_harness(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    code = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from evalharness.server.process import ServerProcess\n"
        "async def main():\n"
        "    argv = [sys.executable, '-c', sys.argv[2]]\n"
        "    await ServerProcess.start(argv, dict(os.environ), Path(sys.argv[1]))\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    harness = subprocess.Popen([sys.executable, "-c", code, str(log), FAMILY])
    pids = asyncio.run(pids_of(log))
    assert all(alive(pid) for pid in pids)
    harness.kill()
    harness.wait()
    wait_gone(pids)


def test_leftovers_are_found_by_their_mark(tmp_path: Path) -> None:
    mark = str(tmp_path / "run")
    left = subprocess.Popen(["sleep", "600"], env={"EVALHARNESS_RUN": mark})
    other = subprocess.Popen(["sleep", "600"], env={"EVALHARNESS_RUN": mark + "2"})
    try:
        end_s = time.monotonic() + 10
        while left.pid not in kill_leftovers(mark) and time.monotonic() < end_s:
            time.sleep(0.02)
        assert left.wait(timeout=5) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        left.kill()
        other.kill()
        other.wait()
