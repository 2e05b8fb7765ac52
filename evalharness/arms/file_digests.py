"""SHA-256 of files, remembered while a file's size, time and inode stay the same.

Model files are large: digesting 100 GB again for each command would cost minutes. What is
remembered lies in the user's cache folder and is only ever a shortcut.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

REMEMBERED_BYTES = 64 << 20
MAX_ENTRIES = 4096
_known: dict[str, str] = {}


def file_digest(path: Path) -> str:
    """Return a file's SHA-256 as 64 hex digits. Raises OSError."""
    stat = path.stat()
    key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"
    large = stat.st_size >= REMEMBERED_BYTES
    if key not in _known and large:
        _known.update(_read())
    if key not in _known:
        with path.open("rb") as stream:
            _known[key] = hashlib.file_digest(stream, "sha256").hexdigest()
        if large:
            _remember(key, _known[key])
    return _known[key]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "evalharness" / "file-digests.json"


def _read() -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(_cache().read_bytes())
        if isinstance(found, dict):
            return {str(key): value for key, value in found.items() if _is_digest(value)}
    return {}


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def _remember(key: str, digest: str) -> None:
    entries = {**_read(), key: digest}
    kept = dict(list(entries.items())[-MAX_ENTRIES:])
    path = _cache()
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(kept), encoding="utf-8")
        temporary.replace(path)
