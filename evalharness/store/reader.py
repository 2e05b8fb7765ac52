"""Read response files back. Nothing damaged is ever used silently: every fault names its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evalharness.errors import StoreError
from evalharness.store.lines import StoredResponse, decode_line


def iter_responses(path: Path) -> Iterator[StoredResponse]:
    """Yield the responses of one file in order.

    Raises StoreError naming file and line for a torn, altered, repeated or foreign line.
    """
    seen: set[tuple[str, int]] = set()
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                stored = _decode(path, number, line)
                key = (stored.response.case_id, stored.response.replicate)
                if key in seen:
                    raise StoreError(
                        f"{path} line {number}: case {key[0]!r} replicate {key[1]} stands twice; "
                        "the file was changed after the run"
                    )
                seen.add(key)
                yield stored
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error


def _decode(path: Path, number: int, line: bytes) -> StoredResponse:
    if not line.endswith(b"\n"):
        raise StoreError(f"{path} line {number}: torn: the last line has no end")
    try:
        return decode_line(line[:-1])
    except ValueError as error:
        raise StoreError(f"{path} line {number}: {error}") from error


def read_responses(path: Path) -> list[StoredResponse]:
    """Return all responses of one file; see iter_responses for the errors."""
    return list(iter_responses(path))
