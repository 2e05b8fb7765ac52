"""Stored responses become scores, offline: no server, no network, no HTTP library.

Scores go to RUN/scores/<entry>.<scorer>-<version>/<arm>/<launch>/<cell>.jsonl, beside those of
other versions and never over them. The same responses always give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evalharness.checked_json import read_checked
from evalharness.errors import PlanError, ScoreError, StoreError
from evalharness.manifest import Entry, Manifest, frozen_manifest
from evalharness.registry import suite_named
from evalharness.scoring_cell import CellJob, CellResult, Change, run_cases, score_cell
from evalharness.scoring_worker import score_in_processes

# Below this many bytes of responses, starting worker processes costs more than it saves.
PARALLEL_BYTES = 48_000_000
MAX_WORKERS = 8


@dataclass(slots=True)
class ScoringSummary:
    """What scoring a run did; the lists name files (`differing`: with the first line and how)."""

    cells: int = 0
    rows: int = 0
    changes: int = 0
    written: list[Path] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, result: CellResult) -> None:
        """Count one cell in."""
        self.cells += 1
        self.rows += result.rows
        self.changes += result.changes
        self.written += result.written
        self.unchanged += result.unchanged
        self.differing += result.differing
        self.faults += result.faults

    def merge(self, other: ScoringSummary) -> None:
        """Count another run in."""
        self.cells += other.cells
        self.rows += other.rows
        self.changes += other.changes
        self.written += other.written
        self.unchanged += other.unchanged
        self.differing += other.differing
        self.faults += other.faults


def score_run(
    run_dir: Path,
    *,
    scorers: Mapping[str, str] | None = None,
    on_change: Callable[[Change], None] | None = None,
    recheck: bool = False,
) -> ScoringSummary:
    """Score the complete cells of a run that have no scores yet.

    scorers: entry name -> scorer version; entries not named use the declared one (the plan's,
        else the manifest's).
    on_change: gets each verdict that differs from the declared scorer's.
    recheck: score the scored cells again too, and compare with what lies there.
    Raises ManifestError, PlanError, StoreError or ScoreError where the run cannot be read at all.
    """
    manifest = frozen_manifest(run_dir)
    declared = declared_scorers(run_dir, manifest)
    wanted = {name: (version,) for name, version in {**declared, **(scorers or {})}.items()}
    return score_with(run_dir, wanted, on_change=on_change, recheck=recheck)


def score_with(
    run_dir: Path,
    wanted: Mapping[str, Iterable[str]],
    *,
    on_change: Callable[[Change], None] | None = None,
    recheck: bool = True,
) -> ScoringSummary:
    """Score a run with several versions per entry; see `score_run`.

    The declared version is always among them where verdicts are compared.
    """
    summary = ScoringSummary()
    notify = on_change or _ignore
    for result in _run_jobs(run_dir, cell_jobs(run_dir, wanted, recheck=recheck), notify):
        summary.add(result)
    return summary


def cell_jobs(
    run_dir: Path, wanted: Mapping[str, Iterable[str]], *, recheck: bool = True
) -> list[CellJob]:
    """Return the complete cells of a run to score with `wanted` versions per entry.

    recheck: the scored cells again too. Raises as `score_run` does.
    """
    manifest = frozen_manifest(run_dir)
    declared = declared_scorers(run_dir, manifest)
    for name, versions in wanted.items():
        _require_known(manifest.entries, name, versions)
    return [
        job
        for job in _jobs(run_dir, manifest.entries, wanted=wanted, declared=declared)
        if recheck or not all(path.exists() for path in job.outputs.values())
    ]


def all_versions(entries: Mapping[str, Entry]) -> dict[str, list[str]]:
    """Return every scorer version that each entry's suite has."""
    suites = {name: suite_named(entry.suite) for name, entry in entries.items()}
    return {name: [*suite.scorers, *suite.token_scorers] for name, suite in suites.items()}


def declared_scorers(run_dir: Path, manifest: Manifest) -> dict[str, str]:
    """Return the declared scorer version of each entry: the plan's, else the manifest's.

    Raises PlanError where plan.json is there and is no plan, or the plan of another manifest;
    ScoreError where it names a scorer that there is not.
    """
    path = run_dir / "plan.json"
    chosen: Mapping[str, str] = {}
    if path.exists():
        plan = read_checked(path, "plan", error=PlanError)
        if manifest.sha256 != plan["manifest"]["sha256"]:
            raise PlanError(
                f"{run_dir / 'manifest.json'}: digest {manifest.sha256[:12]}, the plan was frozen "
                f"with {plan['manifest']['sha256'][:12]}; restore the run's own manifest"
            )
        chosen = plan["scorers"]
        for name, version in chosen.items():
            _require_known(manifest.entries, name, [version], place=f"{path}: scorers: ")
    return {name: chosen.get(name, entry.scorer) for name, entry in manifest.entries.items()}


def score_file(run_dir: Path, responses: Path, *, entry: str, scorer: str) -> Path:
    """Return where the scores of a response file go."""
    relative = responses.relative_to(run_dir / "responses")
    return run_dir / "scores" / f"{entry}.{scorer.replace('/', '-')}" / relative


def _require_known(
    entries: Mapping[str, Entry], name: str, versions: Iterable[str], *, place: str = ""
) -> None:
    if name not in entries:
        raise ScoreError(f"{place}suite {name!r} is not in this run; it has {', '.join(entries)}")
    suite = suite_named(entries[name].suite)
    known = [*suite.scorers, *suite.token_scorers]
    for version in versions:
        if version not in known:
            raise ScoreError(
                f"{place}{name}: unknown scorer {version!r}; expected {', '.join(known)}"
            )


def _jobs(
    run_dir: Path,
    entries: Mapping[str, Entry],
    *,
    wanted: Mapping[str, Iterable[str]],
    declared: Mapping[str, str],
) -> Iterator[CellJob]:
    for record_path in sorted((run_dir / "responses").glob("*/*/*.cell.json")):
        record = read_checked(record_path, "cell", error=StoreError)
        name = record["suite"]
        if name not in entries:
            raise StoreError(
                f"{record_path}: suite {name!r} is not in the run's manifest (it has "
                f"{', '.join(entries)}); restore the record"
            )
        if record["state"] != "complete" or name not in wanted:
            continue
        responses = record_path.with_name(record_path.name.removesuffix(".cell.json") + ".jsonl")
        base = declared[name]
        versions = dict.fromkeys([base, *wanted[name]])  # the baseline first: others compare
        yield CellJob(
            responses=responses,
            responses_sha256=record["responses_sha256"],
            entry=name,
            suite=entries[name].suite,
            concurrency=record["concurrency"],
            baseline=base,
            outputs={
                version: score_file(run_dir, responses, entry=name, scorer=version)
                for version in versions
            },
        )


def _run_jobs(
    run_dir: Path, jobs: list[CellJob], notify: Callable[[Change], None]
) -> Iterator[CellResult]:
    """Yield the results in the order of the jobs, from several processes where it pays."""
    size = sum(job.responses.stat().st_size for job in jobs if job.responses.exists())
    workers = min(MAX_WORKERS, len(os.sched_getaffinity(0)), len(jobs))
    if workers < 2 or size < PARALLEL_BYTES:
        for job in jobs:
            yield score_cell(job, run_cases(run_dir, job.entry), notify)
        return
    for result, changes in score_in_processes(run_dir, jobs, workers):
        for change in changes:
            notify(change)
        yield result


def _ignore(_change: Change) -> None:
    return None
