"""Judging in a process of its own: bounded time per case, replaced when it dies."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import threading
import time
from types import TracebackType
from typing import Any, Self

from evalharness.child import module_command
from evalharness.errors import ScoreError

CPU_LIMIT_S = 5.0
# Only for a worker that neither works nor dies; generous, since it depends on the machine's load.
WALL_LIMIT_S = 120.0
# Starting is importing: on a machine with twenty times its load it took more than two minutes. A
# worker that dies instead is noticed at once.
START_LIMIT_S = 600.0


class JudgeProcess:
    """One worker at a time, started when first needed. Safe to use from several threads."""

    def __init__(
        self,
        *,
        cpu_limit_s: float = CPU_LIMIT_S,
        wall_limit_s: float = WALL_LIMIT_S,
        start_limit_s: float = START_LIMIT_S,
    ) -> None:
        self._cpu_limit_s = cpu_limit_s
        self._wall_limit_s = wall_limit_s
        self._start_limit_s = start_limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def judge(self, schema_text: str, output: str, finish_reason: Any) -> str:
        """Return the worker's tag, or `judge:timeout`, `judge:crashed:<how>`.

        A worker that was already dead when asked is replaced once before the case is given up.
        Raises ScoreError if a format checker is missing or the worker cannot start.
        """
        question = json.dumps([schema_text, output, finish_reason, self._cpu_limit_s])
        with self._lock:
            self._start()
            if not self._send(question):
                self._stop()
                self._start()
                self._send(question)
            answer = self._line(self._wall_limit_s)
            if answer is None:
                return self._bury()
            return str(json.loads(answer))

    def close(self) -> None:
        """Stop the worker, if there is one."""
        with self._lock:
            self._stop()

    def _start(self) -> None:
        if self._process is not None:
            return
        argv, env = module_command("evalharness.schema.worker")
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        self._pending = b""
        hello = self._line(self._start_limit_s)
        if hello is None:
            how = self._bury()
            raise ScoreError(
                f"schema: the judging process did not start ({how}); its own message stands "
                "above; check that `jsonschema[format]` is installed"
            )
        if missing := json.loads(hello)["missing_formats"]:
            self._stop()
            raise ScoreError(
                f"schema: no working checker for the formats {', '.join(missing)}; verdicts would "
                "differ from the rule; install `jsonschema[format]==4.26.0`"
            )

    def _send(self, question: str) -> bool:
        process = self._process
        if process is None or process.stdin is None:
            return False
        try:
            process.stdin.write(question.encode("ascii") + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def _line(self, limit_s: float) -> bytes | None:
        """Return the worker's next line, or None at its end or after `limit_s` seconds."""
        process = self._process
        if process is None or process.stdout is None:
            return None
        deadline_s = time.monotonic() + limit_s
        while b"\n" not in self._pending:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
                return None
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                return None
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _bury(self) -> str:
        """Stop the worker that gave no answer and say how it ended."""
        process = self._process
        code = None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(1.0)  # at its end of output it is gone or going
        self._stop()
        if code is None or code == -signal.SIGPROF:
            return "judge:timeout"
        name = signal.Signals(-code).name if code < 0 else f"exit_{code}"
        return f"judge:crashed:{name}"

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class _Shared:
    """The judge of this process; a forked child makes its own."""

    def __init__(self) -> None:
        self._pid = -1
        self._judge: JudgeProcess | None = None
        self._lock = threading.Lock()

    def get(self) -> JudgeProcess:
        with self._lock:
            if self._judge is None or self._pid != os.getpid():
                self._pid, self._judge = os.getpid(), JudgeProcess()
                atexit.register(self._judge.close)
            return self._judge


_SHARED = _Shared()


def shared_judge() -> JudgeProcess:
    """Return this process's judge; its worker ends with the process."""
    return _SHARED.get()
