"""Function names as the tools API takes them, and back.

The API wants `^[a-zA-Z0-9_-]{1,64}$`; documents have dots. The mapping of an item is one to one,
so that a reply's name tells exactly one document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MAX_LENGTH = 64
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


def api_names(names: Iterable[str]) -> Mapping[str, str]:
    """Return {document name: API name}; names that would meet get a number, in document order.

    Names that need no change keep theirs, whatever stands before them.
    """
    unique = list(dict.fromkeys(names))
    taken = {name for name in unique if _clean(name) == name}
    result: dict[str, str] = {}
    for name in unique:
        clean = _clean(name)
        if clean != name:
            clean = _free(clean, taken)
            taken.add(clean)
        result[name] = clean
    return result


def _clean(name: str) -> str:
    return _FORBIDDEN.sub("_", name)[:MAX_LENGTH] or "_"


def _free(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        suffix = f"_{number}"
        candidate = name[: MAX_LENGTH - len(suffix)] + suffix
        number += 1
    return candidate
