"""The report of a run: JSON, one self-contained HTML page, Markdown for a pull request."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalharness.errors import StoreError
from evalharness.noninferiority import Asked, judge_runs
from evalharness.report.document import build_document
from evalharness.report.html import render_html
from evalharness.report.markdown import render_markdown
from evalharness.runs import load_run

FORMATS = ("html", "md", "json")


def write_report(
    run_dir: Path,
    *,
    formats: Collection[str] = FORMATS,
    asked: Asked | None = None,
) -> list[Path]:
    """Judge the run, write RUN/report/{index.html,report.md,report.json}, return the paths.

    The same run directory gives the same bytes. Raises PlanError or StoreError where the
    directory cannot be trusted.
    """
    document = report_document([run_dir], asked or Asked())
    return write_document(document, run_dir / "report", formats)


def report_document(run_dirs: Sequence[Path], asked: Asked) -> dict[str, Any]:
    """Read, pair and judge one or more runs of one plan; return the report document."""
    runs = [load_run(path, scorers=asked.scorers) for path in run_dirs]
    return build_document(runs, judge_runs(runs, asked), asked)


def write_document(
    document: Mapping[str, Any], folder: Path, formats: Collection[str]
) -> list[Path]:
    """Write the document in each format; StoreError where the folder cannot be written."""
    writers: dict[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
        "html": ("index.html", render_html),
        "md": ("report.md", render_markdown),
        "json": ("report.json", _render_json),
    }
    written = []
    for name in FORMATS:
        if name in formats:
            file, render = writers[name]
            path = folder / file
            _write(path, render(document))
            written.append(path)
    return written


def _render_json(document: Mapping[str, Any]) -> str:
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
