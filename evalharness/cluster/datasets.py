"""Scoring and judging many runs with Ray Data: one row a cell, or a run; results stream back.

The run directories must be on a file system that every node sees under the same path. Scores and
reports are written beside the responses by whoever makes them, as without a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
import ray.data

from evalharness.errors import HarnessError
from evalharness.noninferiority import Asked
from evalharness.report.each import judge_one
from evalharness.scoring_cell import CellJob
from evalharness.scoring_worker import Answer, answer_of, answer_text, job_of, job_text

# Tasks per CPU: enough that one slow cell delays little, few enough that starting them is nothing.
BLOCKS_PER_CPU = 8


def score_cells(jobs: Sequence[tuple[Path, CellJob]]) -> Iterator[Answer]:
    """Score the cells of any number of runs; yields results as they come, in no order.

    Raises ScoreError where a cell could not be scored.
    """
    items = [{"run": str(run), "job": job_text(job)} for run, job in jobs]
    for row in _dataset(items).map(_score).iter_rows():
        yield answer_of(row["answer"], row["job"])


def judge_each(
    runs: Sequence[Path], asked: Asked, formats: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Judge every run alone; yields the summaries of report.each.judge_one, in no order."""
    items = [{"run": str(run)} for run in runs]
    judged = _dataset(items).map(_judge, fn_kwargs={"asked": asked, "formats": tuple(formats)})
    for row in judged.iter_rows():
        summary: dict[str, Any] = json.loads(row["summary"])
        yield summary


def _dataset(items: list[dict[str, str]]) -> Any:
    if not items:
        raise HarnessError("no cell to score: the runs have no complete cells")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    blocks = min(len(items), BLOCKS_PER_CPU * cpus)
    return ray.data.from_items(items, override_num_blocks=blocks)


def _score(row: dict[str, str]) -> dict[str, str]:
    return {"job": row["job"], "answer": answer_text(Path(row["run"]), job_of(row["job"]))}


def _judge(row: dict[str, str], *, asked: Asked, formats: tuple[str, ...]) -> dict[str, str]:
    return {"summary": json.dumps(judge_one(Path(row["run"]), asked, formats))}
