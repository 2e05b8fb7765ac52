"""At the driver: a launch's files land in RUN, and only there does a cell become complete."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from evalharness.cluster.values import Piece
from evalharness.errors import StoreError
from evalharness.factorial.cells import RECORD_SUFFIX, key_of
from evalharness.factorial.prompts import PromptBook, read_back
from evalharness.store import make_directory, write_atomically, write_json
from evalharness.store.rundir import disk_error

# The book of prompts is shared by launches that land in threads of their own.
_book_lock = threading.Lock()


class Landing:
    """Writes one launch's pieces. Raises StoreError where one is not the launch's, or the disk
    fails; what came before is safe."""

    def __init__(self, run: Path, *, arm: str, number: int, prompts: PromptBook) -> None:
        self._run = run
        self._allowed = {("arms", arm, f"{number:03d}"), ("responses", arm, f"{number:03d}")}
        self._prompts = prompts

    def land(self, pieces: Iterable[Piece]) -> list[dict[str, Any]]:
        """Write the pieces in order, synced; return the cell records among them, as kept."""
        records = []
        for piece in pieces:
            path = self._path(piece.path)
            make_directory(path.parent)
            if piece.offset is not None:
                _append(path, piece)
            elif path.name.endswith(RECORD_SUFFIX):
                records.append(self._record(path, piece.data))
            else:
                write_atomically(path, piece.data)
        return records

    def _path(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if parts[:3] not in self._allowed or ".." in parts or len(parts) < 4:
            raise StoreError(f"a node sent {name!r}, which is no file of its launch; not kept")
        return self._run.joinpath(*parts)

    def _record(self, path: Path, data: bytes) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(data)
        if record["state"] == "complete":
            responses = path.with_name(path.name.removesuffix(RECORD_SUFFIX) + ".jsonl")
            state, reason = self._verdict(responses, record)
            record.update(state=state, reason=reason)
        write_json(path, record)
        return record

    def _verdict(self, responses: Path, record: dict[str, Any]) -> tuple[str, str]:
        """Return the cell's state here: its bytes must be the node's, its prompts the arms'."""
        with responses.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != record["responses_sha256"]:
            record["responses_sha256"] = found
            return "aborted", "what landed is not what the node had: the digests differ"
        prompts = read_back(responses).prompts
        with _book_lock:
            difference = self._prompts.compare(key_of(record), prompts)
        return ("incomplete", difference) if difference else ("complete", "")


def _append(path: Path, piece: Piece) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(fd).st_size
            if size != piece.offset:
                raise StoreError(
                    f"{path}: {size} bytes, expected {piece.offset}: another process wrote to it"
                )
            view = memoryview(piece.data)
            while view:
                view = view[os.write(fd, view) :]
            os.fdatasync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise disk_error(path, error, "written") from error
