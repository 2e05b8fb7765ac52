"""A small process that owns one server: when the harness dies, however, so does the server.

Run as a script by `evalharness.server.process`; standard library only. The harness holds this
process's stdin open. End of file there means that the harness is gone (even by SIGKILL).

stdin:  one JSON line {"argv", "env", "log", "grace_s"}; later `stop` or `kill` on a line.
stdout: JSON lines {"pid": n}, then {"exit": code, "signal": name or null, "after_s": seconds}.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
REAP_LIMIT_S = 20.0
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """In the child, before exec: get SIGKILL should this warden itself be killed."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def emit(event: dict[str, Any]) -> None:
    """Tell the harness, if it is still there."""
    try:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
    except OSError:
        pass


def descendants() -> list[int]:
    """Return the ids of all processes below this one; orphans among them were adopted."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    below = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        below |= more
        grown = bool(more)
    return sorted(below - {os.getpid()})


def kill_all() -> None:
    """SIGKILL everything below until nothing is left."""
    end_s = time.monotonic() + REAP_LIMIT_S
    while time.monotonic() < end_s:
        left = descendants()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        reap()
        if not left:
            return
        time.sleep(POLL_S)


def reap() -> None:
    """Collect adopted children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


class Orders:
    """Reads the harness's orders without blocking."""

    def __init__(self) -> None:
        self._text = b""

    def next(self, wait_s: float) -> str:
        """Return `stop`, `kill`, `gone` (the harness died) or an empty string."""
        if not select.select([0], [], [], wait_s)[0]:
            return ""
        data = os.read(0, 4096)
        if not data:
            return "gone"
        self._text += data
        return "kill" if b"kill" in self._text else "stop" if b"stop" in self._text else ""


def supervise(child: subprocess.Popen[bytes], grace_s: float) -> dict[str, Any]:
    """Wait for the child's end or the order to end it; return how it ended."""
    orders = Orders()
    order = ""
    while child.poll() is None and not order:
        order = orders.next(POLL_S)
    start_s = time.monotonic()
    used: str | None = None
    if child.poll() is None and order != "kill":
        used = "SIGTERM"
        child.terminate()
        while child.poll() is None and time.monotonic() - start_s < grace_s:
            if order == "gone":
                time.sleep(POLL_S)
            elif orders.next(POLL_S) in ("kill", "gone"):
                break
    if child.poll() is None:
        used = "SIGKILL"
        child.kill()
        child.wait()
    code = child.returncode
    kill_all()
    return {"exit": code, "signal": used, "after_s": round(time.monotonic() - start_s, 3)}


def main() -> None:
    """Start the server, watch it, end it."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        # A handler, not SIG_IGN: the server would inherit an ignored SIGTERM and never stop.
        signal.signal(number, lambda *_: None)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return
        line += byte
    config = json.loads(line)
    with Path(config["log"]).open("ab", buffering=0) as log:
        try:
            child = subprocess.Popen(
                config["argv"],
                env=config["env"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            emit({"error": f"{config['argv'][0]}: {error.strerror}"})
            return
    emit({"pid": child.pid})
    emit(supervise(child, float(config["grace_s"])))


if __name__ == "__main__":
    main()
