"""Write a report's files: whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evalharness.store import make_directory
from evalharness.store.output import output_file

Renderer = Callable[[Mapping[str, Any]], str]


def write_files(
    document: Mapping[str, Any], folder: Path, renderers: Mapping[str, tuple[str, Renderer]]
) -> list[Path]:
    """Render the document into each file of `renderers` (format -> file name, renderer).

    Raises StoreError where one cannot be written, DiskFullError where the disk is full.
    """
    written = []
    for name, render in renderers.values():
        _write(folder / name, render(document))
        written.append(folder / name)
    return written


def render_json(document: Mapping[str, Any]) -> str:
    """Return the document as JSON, one member a line; NaN raises ValueError."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _write(path: Path, text: str) -> None:
    make_directory(path.parent)
    with output_file(path) as out:
        out.write(text.encode("utf-8", "backslashreplace"))
