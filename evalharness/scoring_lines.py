"""The stored responses of one cell, as scoring reads them: vouched for by the cell's record.

Scores are kept for good, so a response file that is not what its cell record says gives none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from evalharness.store.lines import StoredResponse, decode_line
from evalharness.types import Case

STATUSES = frozenset({"ok", "http_error", "transport_error", "timeout"})


def damage(path: Path, sha256: str | None, cases: Mapping[str, Case]) -> list[str]:
    """Return what is wrong with a response file whose digest is not `sha256`; else nothing."""
    faults: list[str] = []
    try:
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found == sha256:
            return []
        for _ in scorable(path, cases, faults):
            pass  # only for the faults: a lost line leaves none, the digest below tells
    except OSError as error:
        return [f"{path}: {error.strerror}; no scores of this cell are written; restore the file"]
    return [
        *faults,
        f"{path}: its digest is {found[:12]}, its cell record says {str(sha256)[:12]}; no scores "
        "of this cell are written; restore the file and rescore again",
    ]


def scorable(path: Path, cases: Mapping[str, Case], faults: list[str]) -> Iterator[StoredResponse]:
    """Yield the sound lines of known cases, each once; the others become faults."""
    seen: set[tuple[str, int]] = set()
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                stored = decode_line(line.removesuffix(b"\n"))
                key = _key(stored, cases)
                if key in seen:
                    raise ValueError(f"case {key[0]!r} stands twice")
            except ValueError as error:
                faults.append(f"{path} line {number}: {error}; not scored")
                continue
            seen.add(key)
            yield stored


def _key(stored: StoredResponse, cases: Mapping[str, Case]) -> tuple[str, int]:
    """Return (case id, replicate). Raises ValueError on fields that no scorer can read."""
    response = stored.response
    for name, kind in (("case_id", str), ("replicate", int), ("body", str), ("request_body", str)):
        value = getattr(response, name)
        if not isinstance(value, kind):
            raise ValueError(f"field {name}: expected {kind.__name__}, found {value!r:.60}")
    if response.status not in STATUSES:
        raise ValueError(f"field status: expected one of {sorted(STATUSES)}, found another")
    if response.case_id not in cases:
        raise ValueError(f"case {response.case_id!r} is not in the run's manifest")
    return response.case_id, response.replicate
