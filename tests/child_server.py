"""A loopback server as a process of its own: it prints its ports, and ends when its input does."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@contextlib.contextmanager
def child_server(command: Sequence[str]) -> Iterator[list[str]]:
    """Run the command from the repository's root; yields the ports of its first line."""
    server = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        yield server.stdout.readline().split()
    finally:
        server.stdin.close()
        server.wait(timeout=10)
