"""Per-token deltas of two replays, streamed to disk and summarised in bounded memory.

A delta is the candidate's NLL minus the control's, in nats: positive means that the candidate
finds the token less likely. Ten million tokens are 210 MB on disk; memory holds one case while
writing, and one float32 per token (for exact quantiles) while summarising.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalharness.errors import StoreError
from evalharness.nll.stored_row import checked_row
from evalharness.store.output import output_file

ROW = np.dtype(
    [
        ("case", "<u4"),
        ("position", "<u4"),
        ("token", "<u4"),
        ("control", "<f4"),
        ("candidate", "<f4"),
        ("pure", "u1"),
    ]
)
CHUNK_ROWS = 1 << 20
FORMAT = "evalharness/nll-deltas/1"
LARGEST_EXPONENT = 709.0  # exp of more is no float64


@dataclass(frozen=True, slots=True)
class Excluded:
    """A case that gave no deltas, and why."""

    case_id: str
    replicate: int
    reason: str


@dataclass(frozen=True, slots=True)
class Maximum:
    """The largest |delta|: a sample extreme, reported with its place and without an interval."""

    case_id: str
    position: int
    token_id: int
    delta: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Per-case numbers for the statistics, and whole-sample facts.

    sums[g], sizes[g]: sum of deltas (nats) and count of usable tokens of case g; exceed[g, t]:
    tokens with |delta| > thresholds[t]. `nulls` counts tokens null on either side. Cases without
    a usable token keep size 0. Quantiles are of the signed delta over all usable tokens.
    """

    case_ids: tuple[str, ...]
    thresholds: tuple[float, ...]
    sums: NDArray[np.float64]
    sizes: NDArray[np.int64]
    exceed: NDArray[np.int64]
    nulls: int
    quantiles: Mapping[float, float]
    maximum: Maximum | None
    perplexity_control: float | None
    perplexity_candidate: float | None


def write_deltas(control: Path, candidate: Path, target: Path) -> tuple[int, list[Excluded]]:
    """Join two files of NLL rows on (case, replicate) and write `target` and `target`.json.

    Returns the number of token rows and the excluded cases. Raises StoreError where a file
    repeats a case or a line is no NLL row, and where the target cannot be written or is one of
    the two. Order of rows may differ between the two files.
    """
    offsets = _offsets(candidate)
    cases: dict[str, int] = {}
    excluded: list[Excluded] = []
    written, inputs = 0, (control, candidate)
    with (
        candidate.open("rb") as other,
        output_file(target, inputs=inputs) as out,
        output_file(sidecar(target), inputs=inputs) as names,
    ):
        for key, row in _rows(control):
            offset = offsets.pop(key, None)
            mate = _at(other, offset) if offset is not None else None
            reason = _unusable(row, mate)
            if reason or mate is None:
                excluded.append(Excluded(*key, reason))
                continue
            # Replays of a case share its index: the case is the cluster.
            block = _block(cases.setdefault(key[0], len(cases)), row, mate)
            out.write(block.tobytes())
            written += len(block)
        excluded += [Excluded(*key, "missing from the control's rows") for key in offsets]
        record = {"format": FORMAT, "cases": list(cases), "rows": written}
        names.write((json.dumps(record) + "\n").encode("ascii"))
    return written, excluded


def sidecar(target: Path) -> Path:
    """Return the path of the file that names a delta file's cases."""
    return target.with_name(target.name + ".json")


def summarise(
    deltas: Path,
    *,
    thresholds: Sequence[float],
    quantiles: Sequence[float] = (0.5, 0.99),
    pure_only: bool = False,
) -> Summary:
    """Summarise a file of `write_deltas`; `pure_only` keeps tokens pure in both replays.

    Raises StoreError where the file and its sidecar disagree.
    """
    case_ids, table = _open(deltas)
    totals = _Totals(len(case_ids), tuple(thresholds))
    kept: list[NDArray[np.float32]] = []
    for start in range(0, len(table), CHUNK_ROWS):
        chunk = table[start : start + CHUNK_ROWS]
        kept.append(totals.add(chunk[chunk["pure"] == 1] if pure_only else chunk))
    values = np.concatenate(kept) if kept else np.zeros(0, dtype=np.float32)
    points: Sequence[float] = ()
    if len(values):
        points = np.quantile(values, quantiles, overwrite_input=True).tolist()
    return Summary(
        case_ids=tuple(case_ids),
        thresholds=tuple(thresholds),
        sums=totals.sums,
        sizes=totals.sizes,
        exceed=totals.exceed,
        nulls=totals.nulls,
        quantiles={q: float(v) for q, v in zip(quantiles, points, strict=False)},
        maximum=totals.maximum(case_ids),
        perplexity_control=totals.perplexity(0),
        perplexity_candidate=totals.perplexity(1),
    )


class _Totals:
    """Running sums over chunks."""

    def __init__(self, cases: int, thresholds: tuple[float, ...]) -> None:
        self.sums = np.zeros(cases)
        self.sizes = np.zeros(cases, dtype=np.int64)
        self.exceed = np.zeros((cases, len(thresholds)), dtype=np.int64)
        self.nulls = 0
        self._thresholds = thresholds
        self._logprobs = [0.0, 0.0]
        self._worst: tuple[float, int, int, int] | None = None

    def add(self, chunk: NDArray[Any]) -> NDArray[np.float32]:
        """Take a chunk of rows and return its usable deltas."""
        usable = ~(np.isnan(chunk["control"]) | np.isnan(chunk["candidate"]))
        self.nulls += int(np.count_nonzero(~usable))
        chunk = chunk[usable]
        control = chunk["control"].astype(np.float64)
        candidate = chunk["candidate"].astype(np.float64)
        delta, case, count = control - candidate, chunk["case"], len(self.sums)
        self.sums += np.bincount(case, weights=delta, minlength=count)
        self.sizes += np.bincount(case, minlength=count)
        for t, threshold in enumerate(self._thresholds):
            self.exceed[:, t] += np.bincount(case[np.abs(delta) > threshold], minlength=count)
        self._logprobs[0] += float(control.sum())
        self._logprobs[1] += float(candidate.sum())
        if len(delta):
            self._note_worst(chunk, delta)
        return delta.astype(np.float32)

    def _note_worst(self, chunk: NDArray[Any], delta: NDArray[np.float64]) -> None:
        at = int(np.argmax(np.abs(delta)))
        if self._worst is None or abs(delta[at]) > abs(self._worst[0]):
            row = chunk[at]
            self._worst = (
                float(delta[at]),
                int(row["case"]),
                int(row["position"]),
                int(row["token"]),
            )

    def maximum(self, case_ids: Sequence[str]) -> Maximum | None:
        if self._worst is None:
            return None
        delta, case, position, token = self._worst
        return Maximum(case_ids[case], position, token, delta)

    def perplexity(self, side: int) -> float | None:
        count = int(self.sizes.sum())
        if not count:
            return None
        nats = -self._logprobs[side] / count
        return math.exp(nats) if nats < LARGEST_EXPONENT else math.inf


def _open(deltas: Path) -> tuple[list[str], NDArray[Any]]:
    record = json.loads(sidecar(deltas).read_text(encoding="utf-8"))
    size = deltas.stat().st_size
    if record.get("format") != FORMAT or size != record["rows"] * ROW.itemsize:
        raise StoreError(
            f"{deltas}: {size} bytes, expected {record.get('rows')} rows of {ROW.itemsize} bytes; "
            "write the deltas again"
        )
    if not size:
        return record["cases"], np.zeros(0, dtype=ROW)
    return record["cases"], np.memmap(deltas, dtype=ROW, mode="r")


def _block(case: int, row: Mapping[str, Any], mate: Mapping[str, Any]) -> NDArray[Any]:
    count = len(row["token_ids"])
    block = np.zeros(count, dtype=ROW)
    block["case"] = case
    block["position"] = np.arange(count)
    block["token"] = row["token_ids"]
    block["control"] = [math.nan if one is None else one for one in row["logprobs"]]
    block["candidate"] = [math.nan if one is None else one for one in mate["logprobs"]]
    block["pure"] = np.array(row["pure"], dtype=bool) & np.array(mate["pure"], dtype=bool)
    return block


def _unusable(row: Mapping[str, Any], mate: Mapping[str, Any] | None) -> str:
    if row["outcome"] != "observed":
        return f"control unobserved: {row['reason']}"
    if mate is None:
        return "missing from the candidate's rows"
    if mate["outcome"] != "observed":
        return f"candidate unobserved: {mate['reason']}"
    if row["mode"] != mate["mode"]:
        return f"modes differ: {row['mode']} and {mate['mode']}"
    return "" if row["token_ids"] == mate["token_ids"] else "the forced tokens differ"


def _rows(path: Path) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
    seen: set[tuple[str, int]] = set()
    with path.open("rb") as handle:
        for number, line in enumerate(handle, start=1):
            row = checked_row(line, f"{path} line {number}")
            key = (row["case_id"], row["replicate"])
            if key in seen:
                raise StoreError(f"{path} line {number}: case {key} stands there twice")
            seen.add(key)
            yield key, row


def _offsets(path: Path) -> dict[tuple[str, int], int]:
    offsets: dict[tuple[str, int], int] = {}
    at = 0
    with path.open("rb") as handle:
        for number, line in enumerate(handle, start=1):
            row = checked_row(line, f"{path} line {number}")
            key = (row["case_id"], row["replicate"])
            if key in offsets:
                raise StoreError(f"{path} line {number}: case {key} stands there twice")
            offsets[key] = at
            at += len(line)
    return offsets


def _at(handle: Any, offset: int) -> dict[str, Any]:
    handle.seek(offset)
    row: dict[str, Any] = json.loads(handle.readline())
    return row
