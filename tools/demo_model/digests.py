"""Digests of files and of a model directory's tensors, and the record kept beside a model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

RECORD_NAME = "MODEL.json"


class ModelError(Exception):
    """The model, its adapter or a download is missing or not what its digest says."""


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as 64 hex digits."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def tensors_sha256(path: Path) -> str:
    """Return the SHA-256 over a safetensors file's tensors in name order.

    Covers name, dtype, shape and bytes of each tensor; not the header's metadata, which
    changes with the library that wrote the file.
    """
    total = hashlib.sha256()
    with path.open("rb") as handle:
        header_size = int.from_bytes(handle.read(8), "little")
        header = json.loads(handle.read(header_size))
        start = 8 + header_size
        for name in sorted(key for key in header if key != "__metadata__"):
            entry = header[name]
            low, high = entry["data_offsets"]
            total.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode())
            handle.seek(start + low)
            total.update(handle.read(high - low))
    return total.hexdigest()


def require_digest(path: Path, expected: str, *, remedy: str) -> None:
    """Raise ModelError unless the file at `path` exists and has the SHA-256 `expected`."""
    if not path.is_file():
        raise ModelError(f"{path}: missing; expected SHA-256 {expected}; {remedy}")
    found = file_sha256(path)
    if found != expected:
        raise ModelError(f"{path}: expected SHA-256 {expected}, found {found}; {remedy}")


def write_record(directory: Path, recipe: dict[str, Any]) -> None:
    """Write MODEL.json: the recipe and every other file's SHA-256."""
    files = {
        path.name: file_sha256(path)
        for path in sorted(directory.iterdir())
        if path.is_file() and path.name != RECORD_NAME
    }
    text = json.dumps({"recipe": recipe, "files": files}, indent=1, sort_keys=True)
    (directory / RECORD_NAME).write_text(text + "\n", encoding="utf-8")


def matches_record(directory: Path, recipe: dict[str, Any]) -> bool:
    """Say whether `directory` was made by `recipe` and no file of it has changed since."""
    record_path = directory / RECORD_NAME
    if not record_path.is_file():
        return False
    record = json.loads(record_path.read_text(encoding="utf-8"))
    if record.get("recipe") != recipe:
        return False
    files: dict[str, str] = record["files"]
    return all(
        (directory / name).is_file() and file_sha256(directory / name) == digest
        for name, digest in files.items()
    )
