"""The loopback server as a process of its own, and the GSM8K-size rows that are sent to it."""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.child_server import child_server

HERE = Path(__file__).parent
QUESTION = "A shop sells pens at 3 for 2 coins and books at 7 coins each; " * 7


@contextlib.contextmanager
def loopback_server() -> Iterator[str]:
    """Yield the base URL of a server that ends with the block."""
    with child_server([sys.executable, str(HERE / "instant_server.py")]) as (port,):
        yield f"http://127.0.0.1:{port}"


def stats(url: str) -> dict[str, Any]:
    """Return (and reset) what the server answered; see instant_server.Stats."""
    with urllib.request.urlopen(f"{url}/bench/stats", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def rows(count: int) -> list[dict[str, str]]:
    """Return word problems about as long as GSM8K's (430 characters of question)."""
    return [
        {
            "id": f"row-{number:05d}",
            "question": f"{number}: {QUESTION}",
            "answer": "Count them one by one.\n#### 42",
            "final": "42",
        }
        for number in range(count)
    ]


def write_rows(path: Path, count: int) -> Path:
    """Write the rows as JSON Lines and return the path."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows(count))
    return path
