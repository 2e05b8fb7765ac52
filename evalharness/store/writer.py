"""Append responses to a cell's file: written and fsync'd in groups, off the event loop.

A response counts (`acknowledged`) only once its line is on disk. The event loop encodes lines
and never waits for the disk; a thread writes and syncs what has gathered.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evalharness.errors import IncompleteError
from evalharness.store.lines import LineHead, encode_line
from evalharness.store.rundir import disk_error, sync_directory
from evalharness.types import Response

# Long enough to gather a group when answers come at once, short beside any model's step.
GROUP_INTERVAL_S = 0.02
MAX_PENDING_BYTES = 64 << 20


class ResponseWriter:
    """Writes one new response file. Use within a running event loop; close it when done.

    heads: by case id, the ready-made beginnings of lines; others are made when needed.

    Raises StoreError where the file cannot be created, IncompleteError where the disk fails
    later (full, gone): the cell then stays incomplete.
    """

    def __init__(self, path: Path, heads: Mapping[str, LineHead] | None = None) -> None:
        self.path = path
        self._heads = heads or {}
        self.acknowledged = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._hurry = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._failure: OSError | None = None
        self._digest = hashlib.sha256()
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
            sync_directory(path.parent)
        except OSError as error:
            self._pool.shutdown()
            raise disk_error(path, error, "created") from error

    def append(self, response: Response) -> None:
        """Queue one response; returns before it is on disk."""
        if self._failure is not None:
            raise self._error()
        line = encode_line(response, self._heads.get(response.case_id))
        self._pending.append(line)
        self._pending_bytes += len(line)
        if self._idle.is_set():
            self._idle.clear()
            self._timer = self._loop.call_later(GROUP_INTERVAL_S, self._flush)

    @property
    def full(self) -> bool:
        """True while so much waits for the disk that senders should wait too."""
        return self._pending_bytes > MAX_PENDING_BYTES

    async def drain(self) -> None:
        """Write what is queued now, and wait until it is on disk."""
        self._hurry = True
        if self._timer is not None:
            self._timer.cancel()
            self._flush()
        await self._idle.wait()
        self._hurry = False
        if self._failure is not None:
            raise self._error()

    async def close(self) -> str:
        """Wait for the disk, close the file and return the SHA-256 of its bytes."""
        try:
            await self.drain()
            return self._digest.hexdigest()
        finally:
            await self._idle.wait()
            os.close(self._fd)
            self._pool.shutdown()

    def _flush(self) -> None:
        self._timer = None
        group, self._pending = self._pending, []
        future = self._loop.run_in_executor(self._pool, self._write, group)
        future.add_done_callback(lambda done: self._flushed(len(group), done))

    def _write(self, group: list[bytes]) -> int:
        data = b"".join(group)
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        os.fdatasync(self._fd)
        self._digest.update(data)
        return len(data)

    def _flushed(self, count: int, done: asyncio.Future[int]) -> None:
        try:
            self._pending_bytes -= done.result()
            self.acknowledged += count
        except OSError as error:
            self._failure = error
            self._pending.clear()
        if not self._pending:
            self._idle.set()
        elif self._hurry:
            self._flush()
        else:
            self._timer = self._loop.call_later(GROUP_INTERVAL_S, self._flush)

    def _error(self) -> IncompleteError:
        assert self._failure is not None
        return IncompleteError(
            f"{self.path}: writing failed: {self._failure.strerror}; {self.acknowledged} responses "
            "are safe, the cell is not complete; free space and run the same command again"
        )
