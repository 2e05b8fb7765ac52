"""On a node: what a launch has put on disk since the last look, in an order that is safe to keep.

A record that says `complete` never comes before the responses that it counts: records are read
first and handed on last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from evalharness.cluster.values import Piece

PIECE_BYTES = 8 << 20
RECORDS = "responses/*/*/*.cell.json"
GROWING = ("responses/*/*/*.jsonl", "arms/*/*/server.log")
FACTS = "arms/*/*/**/*"


class Follower:
    """Reads a scratch folder laid out like RUN. Not for two threads at once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read: dict[Path, int] = {}
        self._seen: dict[Path, tuple[int, int]] = {}

    def take(self) -> list[Piece]:
        """Return what is new: grown files from where they were read to, others whole."""
        records = list(self._changed(RECORDS))
        grown = [piece for pattern in GROWING for piece in self._grown(pattern)]
        facts = list(self._changed(FACTS))
        return [*grown, *facts, *records]

    def _grown(self, pattern: str) -> Iterator[Piece]:
        for path in sorted(self._root.glob(pattern)):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as stream:
                offset = self._read.get(path, 0)
                stream.seek(offset)
                while data := stream.read(PIECE_BYTES):
                    yield Piece(self._name(path), data, offset)
                    offset += len(data)
                self._read[path] = offset

    def _changed(self, pattern: str) -> Iterator[Piece]:
        for path in sorted(self._root.glob(pattern)):
            if path.name.startswith(".") or path.name == "server.log" or not path.is_file():
                continue
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                state = (stat.st_mtime_ns, stat.st_size)
                if self._seen.get(path) != state:
                    self._seen[path] = state
                    yield Piece(self._name(path), path.read_bytes())

    def _name(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()
