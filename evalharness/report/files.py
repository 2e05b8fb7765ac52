"""Write a report's files: whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evalharness.errors import StoreError

Renderer = Callable[[Mapping[str, Any]], str]


def write_files(
    document: Mapping[str, Any], folder: Path, renderers: Mapping[str, tuple[str, Renderer]]
) -> list[Path]:
    """Render the document into each file of `renderers` (format -> file name, renderer)."""
    written = []
    for name, render in renderers.values():
        _write(folder / name, render(document))
        written.append(folder / name)
    return written


def render_json(document: Mapping[str, Any]) -> str:
    """Return the document as JSON, one member a line; NaN raises ValueError."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _write(path: Path, text: str) -> None:
    # Whole or not at all: a reader never sees half a report.
    partial = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
        partial.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot write the report: {error.strerror}") from error
