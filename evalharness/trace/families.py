"""Which family a kernel belongs to, by its source name: the first pattern that is found in it.

The list is families.json (formats/trace_families.schema.json); another may be given. A name in no
family is `unknown` and stays visible by itself: it is never added to a family that looks near.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from evalharness.checked_json import read_checked
from evalharness.errors import ManifestError

DEFAULT = Path(__file__).with_name("families.json")
UNKNOWN = "unknown"
FORMAT = "trace_families"


@dataclass(frozen=True, slots=True)
class Families:
    """The ordered list: family -> one pattern that holds all of its own."""

    patterns: tuple[tuple[str, re.Pattern[str]], ...]

    def of(self, name: str) -> str:
        """Return the family of a kernel's source name, or `unknown`."""
        for family, pattern in self.patterns:
            if pattern.search(name):
                return family
        return UNKNOWN

    @property
    def names(self) -> tuple[str, ...]:
        """The families in their order."""
        return tuple(family for family, _ in self.patterns)


def read_families(path: Path = DEFAULT) -> Families:
    """Read a families file. Raises ManifestError naming the family whose pattern is none."""
    return _families(path, read_checked(path, FORMAT, error=ManifestError)["families"])


@lru_cache(maxsize=1)
def default_families() -> Families:
    """Return the packaged list."""
    return read_families()


def _families(path: Path, rows: Sequence[Mapping[str, Any]]) -> Families:
    seen: set[str] = set()
    made: list[tuple[str, re.Pattern[str]]] = []
    for row in rows:
        name = row["family"]
        if name in seen or name == UNKNOWN:
            raise ManifestError(f"{path}: family {name!r} stands twice or is reserved; rename it")
        seen.add(name)
        for pattern in row["patterns"]:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ManifestError(
                    f"{path}: family {name!r}: {pattern!r} is no regular expression ({error})"
                ) from error
        made.append((name, re.compile("|".join(f"(?:{one})" for one in row["patterns"]))))
    return Families(tuple(made))
