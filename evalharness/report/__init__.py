"""The report of a run: JSON, one self-contained HTML page, Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalharness.noninferiority import Asked, judge_runs
from evalharness.report.document import build_document
from evalharness.report.files import Renderer, render_json, write_files
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
    renderers: dict[str, tuple[str, Renderer]] = {
        "html": ("index.html", render_html),
        "md": ("report.md", render_markdown),
        "json": ("report.json", render_json),
    }
    return write_files(document, folder, {k: v for k, v in renderers.items() if k in formats})
