"""Many runs, each judged alone: one summary a run, and what all of them add up to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalharness.errors import EXIT_INTERNAL, EXIT_OK, HarnessError
from evalharness.noninferiority import Asked
from evalharness.report import report_document, write_document
from evalharness.report.document import VERDICTS


def judge_one(run_dir: Path, asked: Asked, formats: Collection[str]) -> dict[str, Any]:
    """Judge one run, write RUN/report, return its summary; an error of the run becomes one too.

    The summary: run, verdict, sentence, exit_code and cells (arm, suite, mode, concurrency,
    cases, wins, losses, verdict), or run, error and exit_code.
    """
    try:
        document = report_document([run_dir], asked)
        write_document(document, run_dir / "report", formats)
    except HarnessError as error:
        return {"run": str(run_dir), "error": str(error), "exit_code": error.exit_code}
    except Exception as error:  # noqa: BLE001 - one run must not cost the others' verdicts
        said = f"internal error: {type(error).__name__}: {error}"
        return {"run": str(run_dir), "error": said, "exit_code": EXIT_INTERNAL}
    head = document["headline"]
    return {
        "run": str(run_dir),
        "verdict": head["verdict"],
        "sentence": head["sentence"],
        "exit_code": head["exit_code"],
        "cells": [
            {
                "arm": cell["arm"],
                "suite": cell["suite"],
                "mode": cell["mode"],
                "concurrency": cell["concurrency"],
                "cases": sum(cell["table"].values()),
                "wins": cell["table"]["wins"],
                "losses": cell["table"]["losses"],
                "verdict": cell["verdict"],
            }
            for cell in document["cells"]
        ],
    }


def exit_code_of(summaries: Iterable[Mapping[str, Any]]) -> int:
    """Return the exit code of the gravest run: an error first, then by verdict."""
    codes = {"admitted": EXIT_OK}
    for summary in summaries:
        if "error" in summary:
            return int(summary["exit_code"])
        codes[summary["verdict"]] = int(summary["exit_code"])
    return next(codes[verdict] for verdict in VERDICTS if verdict in codes)


def totals(summaries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, by arm, suite, mode and concurrency, runs, cases, wins, losses and verdicts.

    A description, not a test: the runs may have asked different questions.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    keys = ("arm", "suite", "mode", "concurrency")
    for summary in summaries:
        for cell in summary.get("cells", ()):
            place = tuple(cell[key] for key in keys)
            row = rows.setdefault(
                place,
                {
                    **dict(zip(keys, place, strict=True)),
                    **{"runs": 0, "cases": 0, "wins": 0, "losses": 0},
                    "verdicts": defaultdict(int),
                },
            )
            row["runs"] += 1
            for name in ("cases", "wins", "losses"):
                row[name] += cell[name]
            row["verdicts"][cell["verdict"]] += 1
    return [{**row, "verdicts": dict(row["verdicts"])} for _, row in sorted(rows.items())]
