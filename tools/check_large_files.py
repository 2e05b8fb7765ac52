"""Refuse files over 2 MiB; the repository stays small enough to clone in seconds."""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT_BYTES = 2 * 1024 * 1024


def main(names: list[str]) -> int:
    """Print each file over the limit and return 1 if there is one."""
    large = [name for name in names if Path(name).stat().st_size > LIMIT_BYTES]
    for name in large:
        print(f"{name}: {Path(name).stat().st_size} bytes, at most {LIMIT_BYTES}; keep it out")
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
