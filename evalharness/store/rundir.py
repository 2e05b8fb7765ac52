"""The run directory: its lock, and its small files written whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evalharness.errors import DiskFullError, StoreError
from evalharness.text import printable

LOCK_NAME = ".lock"
HOLDER_WAIT_S = 5.0


def sync_directory(folder: Path) -> None:
    """Make a new or renamed entry of the folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, synced. Raises StoreError."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise disk_error(path, error, "written") from error


def disk_error(path: Path, error: OSError, what: str) -> StoreError:
    """Return the error of a file that cannot be `what`; a full disk has its own exit code."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "free space and run the same command again"
        return DiskFullError(f"{path}: cannot be {what}: {error.strerror}; {remedy}")
    return StoreError(f"{path}: cannot be {what}: {error.strerror}")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, whole or not at all."""
    text = json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False)
    write_atomically(path, (text + "\n").encode("ascii"))


def read_json(path: Path) -> Any:
    """Read one JSON file. Raises StoreError naming file and fault."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not JSON ({printable(str(error))}); restore it") from error


def make_directory(path: Path) -> None:
    """Create a folder and its parents. Raises StoreError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(path, error, "created") from error


def _holder(fd: int) -> str:
    """Return what the holder of the lock says of itself; it writes that just after taking it."""
    end_s = time.monotonic() + HOLDER_WAIT_S
    while True:
        text = printable(os.pread(fd, 400, 0).decode("utf-8", "replace")).strip()
        if text or time.monotonic() > end_s:
            return text
        time.sleep(0.01)


@contextlib.contextmanager
def run_lock(run: Path) -> Iterator[None]:
    """Hold the run for this process; raises StoreError saying who holds it already.

    The kernel drops the lock with the process, however it ends, so none is ever stale.
    """
    make_directory(run)
    path = run / LOCK_NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        kind, remedy = (
            (DiskFullError, "free space") if full else (StoreError, "give a writable --out")
        )
        raise kind(f"{run}: cannot be written: {error.strerror}; {remedy}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(
                f"{run}: in use by {_holder(fd) or 'another process'}; "
                "wait for it, stop it, or give another --out"
            ) from error
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        who = f"process {os.getpid()} on {socket.gethostname()} since {started}"
        os.pwrite(fd, who.encode(), 0)
        os.ftruncate(fd, len(who.encode()))
        yield
    finally:
        os.close(fd)
