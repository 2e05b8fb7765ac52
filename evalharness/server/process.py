"""Start and stop one server process through its warden, so that it never outlives the harness."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalharness.errors import ServerError
from evalharness.text import printable

GRACE_S = 20.0
LOG_LINES = 25
LOG_TAIL_BYTES = 64 << 10
_WARDEN_ENV = ("PATH", "LD_LIBRARY_PATH")  # to find its own interpreter, no more
RUN_MARK = "EVALHARNESS_RUN"


class ServerProcess:
    """One server under its warden. `exited` is set when the server has ended by itself or not."""

    def __init__(self, warden: asyncio.subprocess.Process, log: Path) -> None:
        self.pid = 0
        self.log = log
        self.exited = asyncio.Event()
        self.ending: dict[str, Any] | None = None
        self._warden = warden
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, argv: Sequence[str], env: Mapping[str, str], log: Path) -> ServerProcess:
        """Start the server with its output going straight to the log. Raises ServerError."""
        warden = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(Path(__file__).with_name("warden.py")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={name: os.environ[name] for name in _WARDEN_ENV if name in os.environ},
        )
        process = cls(warden, log)
        config = {"argv": list(argv), "env": dict(env), "log": str(log), "grace_s": GRACE_S}
        assert warden.stdin is not None and warden.stdout is not None
        warden.stdin.write(json.dumps(config).encode() + b"\n")
        await warden.stdin.drain()
        first = json.loads(await warden.stdout.readline() or b"{}")
        if "pid" not in first:
            warden.stdin.close()
            await warden.wait()
            reason = printable(str(first.get("error", "the warden ended at once")))
            raise ServerError(f"the server could not be started: {reason}")
        process.pid = int(first["pid"])
        process._reader = asyncio.ensure_future(process._watch())
        return process

    async def _watch(self) -> None:
        assert self._warden.stdout is not None
        line = await self._warden.stdout.readline()
        if line:
            self.ending = json.loads(line)
        else:
            # The warden itself was killed: the server's group must still go.
            self._kill_group()
            self.ending = {"exit": None, "signal": "SIGKILL", "after_s": None}
        self.exited.set()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def stop(self, *, at_once: bool = False) -> dict[str, Any]:
        """End the server (SIGTERM, then SIGKILL) and all it started; return how it ended."""
        await self._order(b"kill\n" if at_once else b"stop\n")
        try:
            await asyncio.wait_for(self.exited.wait(), GRACE_S * 2)
        except TimeoutError:
            self._kill_group()
            with contextlib.suppress(ProcessLookupError):
                self._warden.kill()
        await self._warden.wait()
        if self._reader is not None:
            await self._reader
        assert self.ending is not None
        ending = self.ending
        return {
            "signal": ending["signal"],
            "exit_code": ending["exit"],
            "after_s": ending["after_s"],
        }

    async def _order(self, order: bytes) -> None:
        assert self._warden.stdin is not None
        with contextlib.suppress(ConnectionError, OSError):
            self._warden.stdin.write(order)
            await self._warden.stdin.drain()

    def last_lines(self) -> str:
        """Return the log's last lines, made safe to print."""
        return tail(self.log)


def tail(log: Path) -> str:
    """Return the last lines of a log, made safe to print."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError as error:
        return f"({log}: {error.strerror})"
    lines = text.splitlines()[-LOG_LINES:]
    return "\n".join(f"  | {printable(line)}" for line in lines) or "  (the log is empty)"


def kill_leftovers(mark: str) -> list[int]:
    """Kill processes that an earlier harness of this run left, found by their environment.

    Only needed when harness and warden were both killed at once. Returns the ids killed.
    """
    return kill_marked(lambda found: found == mark)


def kill_marked(leftover: Callable[[str], bool]) -> list[int]:
    """Kill the processes whose run mark `leftover` says yes to; returns their ids."""
    name = f"{RUN_MARK}=".encode()
    killed: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            for item in (entry / "environ").read_bytes().split(b"\0"):
                if item.startswith(name) and leftover(os.fsdecode(item[len(name) :])):
                    os.kill(int(entry.name), signal.SIGKILL)
                    killed.append(int(entry.name))
                    break
    return killed
