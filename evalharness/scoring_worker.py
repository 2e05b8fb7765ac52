"""Scoring cells in processes of their own: JSON lines between them, no pickled objects.

`python -m evalharness.scoring_worker RUN`: one job a line in, one result a line out.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evalharness.child import module_command
from evalharness.errors import DiskFullError, HarnessError, ScoreError
from evalharness.scoring_cell import CellJob, CellResult, Change, run_cases, score_cell

Answer = tuple[CellResult, list[Change]]


def score_in_processes(run_dir: Path, jobs: Sequence[CellJob], workers: int) -> Iterator[Answer]:
    """Yield results and changes in the order of the jobs. Raises ScoreError if a worker fails."""
    idle: queue.Queue[_Worker] = queue.Queue()
    started = [_Worker(run_dir) for _ in range(workers)]
    for worker in started:
        idle.put(worker)

    def ask(job: CellJob) -> Answer:
        worker = idle.get()
        try:
            return worker.ask(job)
        finally:
            idle.put(worker)

    try:
        with ThreadPoolExecutor(workers) as threads:
            yield from threads.map(ask, jobs)
    finally:
        for worker in started:
            worker.close()


class _Worker:
    def __init__(self, run_dir: Path) -> None:
        argv, env = module_command("evalharness.scoring_worker", str(run_dir))
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
        )

    def ask(self, job: CellJob) -> Answer:
        process = self._process
        line = ""
        if process.stdin is not None and process.stdout is not None and process.poll() is None:
            process.stdin.write(job_text(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        ended = json.dumps({"error": f"its process ended: {process.poll()}"})
        return answer_of(line or ended, job_text(job))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def job_text(job: CellJob) -> str:
    """Return a job as one line of JSON."""
    outputs = {version: str(path) for version, path in job.outputs.items()}
    return json.dumps({**asdict(job), "responses": str(job.responses), "outputs": outputs})


def job_of(text: str) -> CellJob:
    """Return the job of a line."""
    value = json.loads(text)
    outputs = {version: Path(path) for version, path in value["outputs"].items()}
    return CellJob(**{**value, "responses": Path(value["responses"]), "outputs": outputs})


def answer_text(run_dir: Path, job: CellJob) -> str:
    """Score one cell; return what became of it as one line of JSON, an `error` where nothing."""
    changes: list[Change] = []
    try:
        result = score_cell(job, run_cases(run_dir, job.entry), changes.append)
    except (HarnessError, OSError) as error:
        return json.dumps({"error": str(error), "full": isinstance(error, DiskFullError)})
    answer = {**asdict(result), "changes": [asdict(change) for change in changes]}
    for name in ("written", "unchanged"):
        answer[name] = [str(path) for path in answer[name]]
    return json.dumps(answer)


def answer_of(text: str, job: str) -> Answer:
    """Return the result and changes of an answer's line.

    Raises DiskFullError where the disk was full, ScoreError where it is another error.
    """
    answer: dict[str, Any] = json.loads(text)
    if answer.get("full"):
        raise DiskFullError(answer["error"])
    if "error" in answer:
        raise ScoreError(f"{job_of(job).responses}: not scored: {answer['error']}")
    changes = [Change(**change) for change in answer.pop("changes")]
    paths = {name: [Path(path) for path in answer[name]] for name in ("written", "unchanged")}
    return CellResult(**{**answer, **paths, "changes": len(changes)}), changes


def serve(run_dir: Path) -> None:
    """Answer jobs until standard input ends."""
    for line in sys.stdin:
        sys.stdout.write(answer_text(run_dir, job_of(line)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
