"""Which cells a run has, which are complete on disk, and what their requests are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalharness.arms import PlannedLaunch
from evalharness.checked_json import read_checked
from evalharness.errors import StoreError
from evalharness.manifest import Entry, Manifest
from evalharness.registry import suite_named
from evalharness.seeds import request_seed
from evalharness.store import decode_line, write_json
from evalharness.types import Case, CellKey, Request, RequestContext, Shard

RECORD_SUFFIX = ".cell.json"
NOT_AS_PLANNED = "if the run was closed before, its verdicts are then exploratory"


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One cell of the run and the number of responses it will hold."""

    key: CellKey
    cases: int


def shards_of(entry: Entry, *, shards: int, concurrency: Sequence[int]) -> int:
    """Return into how many shards an entry's cases are dealt out: at most `shards`.

    A shard smaller than the highest concurrency would never have that many in flight, so a
    short list has fewer shards, or stays whole; so does a speed suite's, whose cells are timed.
    """
    if _is_speed(entry):
        return 1
    return max(1, min(shards, len(entry.case_ids) // max(concurrency)))


def cases_at(entry: Entry, concurrency: int) -> int:
    """Return how many cases a cell asks: all, or where the entry counts in waves of C, C each."""
    waves = entry.options.get("waves")
    count = len(entry.case_ids)
    return count if waves is None else min(count, int(waves) * concurrency)


def _is_speed(entry: Entry) -> bool:
    return suite_named(entry.suite).kind == "speed"


def planned_cells(
    manifest: Manifest, launch: PlannedLaunch, concurrency: Sequence[int], *, shards: int = 1
) -> list[PlannedCell]:
    """Return a launch's cells in the fixed order in which they run.

    shards: what the run asked for; a launch has no cells of a list with fewer shards than its own.
    """
    cells = []
    for replicate in launch.replicates:
        for entry in manifest.entries.values():
            of = shards_of(entry, shards=shards, concurrency=concurrency)
            if launch.shard > of or (launch.speed_only and not _is_speed(entry)):
                continue
            shard = Shard(launch.shard, of)
            size = len(shard.part(entry.case_ids))
            cells += [
                PlannedCell(
                    CellKey(launch.arm, entry.name, mode, width, replicate, shard),
                    min(size, cases_at(entry, width)),
                )
                for mode in entry.modes
                for width in concurrency
            ]
    return cells


def build_requests(
    entry: Entry, cases: Sequence[Case], key: CellKey, *, model: str, seed: int
) -> list[Request]:
    """Return a cell's requests in manifest order; equal in every arm and at every concurrency.

    cases: all of the entry's; a sharded cell asks its own part of them, and one that counts in
    waves the first of them.
    """
    suite = suite_named(entry.suite)
    return [
        suite.request(
            case,
            RequestContext(
                model=model,
                mode=key.mode,
                sampling=entry.sampling,
                seed=request_seed(
                    seed,
                    suite=entry.name,
                    case_id=case.case_id,
                    replicate=key.replicate,
                    salt=entry.seed_salt,
                ),
                replicate=key.replicate,
                template=entry.template,
            ),
        )
        for case in key.shard.part(cases)[: cases_at(entry, key.concurrency)]
    ]


def responses_file(run: Path, key: CellKey, launch: str) -> Path:
    """Return the cell's response file; its record lies beside it."""
    return run / "responses" / key.arm / launch / f"{key.filename}.jsonl"


def record_file(responses: Path) -> Path:
    """Return the cell record's path of a response file."""
    return responses.with_name(responses.name.removesuffix(".jsonl") + RECORD_SUFFIX)


def complete_cells(run: Path) -> dict[CellKey, Path]:
    """Return the response file of every complete cell.

    Raises StoreError where a file is not the one that its record vouches for: a damaged
    response is never used, and never asked again behind the user's back.
    """
    found: dict[CellKey, Path] = {}
    for path in sorted((run / "responses").glob(f"*/*/*{RECORD_SUFFIX}")):
        record = read_checked(path, "cell", error=StoreError)
        if record["state"] != "complete":
            continue
        key = key_of(record)
        responses = path.with_name(path.name.removesuffix(RECORD_SUFFIX) + ".jsonl")
        _verify(responses, record)
        if key in found:
            raise StoreError(
                f"{path} and {record_file(found[key])}: one cell is complete twice; "
                "the run directory was changed by hand"
            )
        found[key] = responses
    return found


def key_of(record: Mapping[str, Any]) -> CellKey:
    """Return the key of a cell record."""
    return CellKey(
        arm=record["arm"],
        suite=record["suite"],
        mode=record["mode"],
        concurrency=record["concurrency"],
        replicate=record["replicate"],
        shard=Shard(*record.get("shard", (1, 1))),
    )


def _verify(responses: Path, record: Mapping[str, Any]) -> None:
    try:
        with responses.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise StoreError(
            f"{responses}: {error.strerror}, but its record says complete; restore the file, or "
            f"delete {record_file(responses).name} to run the cell again ({NOT_AS_PLANNED})"
        ) from error
    if digest != record["responses_sha256"]:
        raise StoreError(
            f"{responses}: {_first_fault(responses)}its digest is {digest[:12]}, its record says "
            f"{str(record['responses_sha256'])[:12]}; restore the file, or delete it and "
            f"{record_file(responses).name} to run the cell again ({NOT_AS_PLANNED})"
        )


def _first_fault(responses: Path) -> str:
    for number, line in enumerate(responses.read_bytes().split(b"\n")[:-1], start=1):
        try:
            decode_line(line)
        except ValueError as error:
            return f"line {number} is {error}; "
    return ""


def close_unfinished(run: Path, *, launch: str = "*", reason: str = "") -> Iterator[CellKey]:
    """Complete the records of cells that a killed harness left; yields those cells.

    A cell's record says `aborted` from its first moment until it is complete. What is on disk
    is kept and counted here, and never used.
    launch: the folder name of one launch; all of them by default. reason: replaces the record's.
    """
    for path in sorted((run / "responses").glob(f"*/{launch}/*{RECORD_SUFFIX}")):
        record = read_checked(path, "cell", error=StoreError)
        if record["state"] != "aborted" or record["responses_sha256"] is not None:
            continue
        responses = path.with_name(path.name.removesuffix(RECORD_SUFFIX) + ".jsonl")
        raw = _read_unfinished(responses)
        record.update(rows=raw.count(b"\n"), responses_sha256=hashlib.sha256(raw).hexdigest())
        record["reason"] = reason or record["reason"]
        write_json(path, record)
        yield key_of(record)


def _read_unfinished(responses: Path) -> bytes:
    try:
        return responses.read_bytes()
    except FileNotFoundError:
        return b""  # the harness was killed before the first response
    except OSError as error:
        raise StoreError(f"{responses}: {error.strerror}; expected responses; delete it") from error


def cell_record(key: CellKey, launch: int, *, state: str) -> dict[str, Any]:
    """Return an empty cell record (formats/cell.schema.json)."""
    shard = {"shard": [key.shard.number, key.shard.of]} if key.shard.of > 1 else {}
    return {
        "format": "evalharness/cell/1",
        "arm": key.arm,
        "launch": launch,
        "suite": key.suite,
        "mode": key.mode,
        "concurrency": key.concurrency,
        "replicate": key.replicate,
        **shard,
        "state": state,
        "reason": "",
        "rows": 0,
        "expected_rows": 0,
        "responses_sha256": None,
        "started_utc": "",
        "wall_s": 0.0,
        "status_counts": {},
        "prompt_tokens": 0,
        "output_tokens": 0,
        "prefix_cache_reset": "not-supported",
        "running_samples": [],
        "concurrency_reached": None,
        "loop_lag_ms_p99": None,
        "client_bound": False,
        "idle_share": None,
    }
