"""Manifests: the frozen list of a run's cases. Load, verify, and freeze into a run directory.

A manifest holds ids and digests, never the data. Format: formats/manifest.schema.json.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import jsonschema

from evalharness.data import Source, rows
from evalharness.errors import ManifestError, StoreError
from evalharness.registry import suite_named
from evalharness.strict_json import JsonFault, parse_strict
from evalharness.types import Case, Sampling, canonical_json, sha256_hex

ENTRY_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
FORMAT_FILE = Path(__file__).parent / "formats" / "manifest.schema.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One suite as a manifest asks it. `cases` are (case id, SHA-256 of its canonical JSON)."""

    name: str
    suite: str
    source: Source
    modes: tuple[str, ...]
    template: str
    scorer: str
    sampling: Sampling
    seed_salt: str
    options: Mapping[str, Any]
    cases: tuple[tuple[str, str], ...]

    @property
    def case_ids(self) -> tuple[str, ...]:
        """Ids in manifest order."""
        return tuple(case_id for case_id, _ in self.cases)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as read. `sha256` is over the file's bytes, `text` holds them."""

    name: str
    sha256: str
    text: str
    entries: Mapping[str, Entry]


@dataclass(frozen=True, slots=True)
class Problem:
    """A case that is not what the manifest froze."""

    entry: str
    case_id: str
    kind: Literal["missing", "changed", "malformed"]
    detail: str

    def __str__(self) -> str:
        return f"{self.entry}: case {self.case_id} is {self.kind}: {self.detail}"


def load_manifest(path: Path) -> Manifest:
    """Read a manifest and check it against the format, the registry and itself.

    Raises ManifestError naming the file, the place in it, what was expected and found.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: cannot be read ({error}); expected a manifest") from error
    return parse_manifest(text, str(path))


def parse_manifest(text: str, place: str) -> Manifest:
    """Return the manifest of a text; `place` names it in errors (ManifestError)."""
    try:
        document = parse_strict(text)
    except JsonFault as fault:
        raise ManifestError(
            f"{place}: not one strict JSON text ({fault.kind}); expected a manifest"
        ) from None
    _check_format(text, document, place)
    try:
        suites = document["suites"].items()
        entries = {name: _entry(name, body, place=place) for name, body in suites}
    except (ValueError, RecursionError) as error:  # values that canonical JSON cannot hold
        raise ManifestError(f"{place}: {error}; correct the manifest") from error
    return Manifest(document["name"], sha256_hex(text), text, entries)


def _check_format(text: str, document: Any, place: str) -> None:
    fault = _format_fault(text)
    if fault is not None:
        raise ManifestError(f"{place}: {fault}; see {FORMAT_FILE.name}")
    for name in document["suites"]:
        if not ENTRY_NAME.fullmatch(name):
            raise ManifestError(
                f"{place}: suites/{name!r}: an entry's name becomes a file name; expected letters, "
                "digits, `_`, `-` and `.` only, beginning with a letter"
            )


@lru_cache(maxsize=8)
def _format_fault(text: str) -> str | None:
    """Return where and how a manifest's text leaves the format, or None.

    Kept: a run reads its manifest several times, and checking a thousand cases takes longer than
    reading them.
    """
    fault = jsonschema.exceptions.best_match(_format().iter_errors(parse_strict(text)))
    if fault is None:
        return None
    where = "/".join(str(part) for part in fault.absolute_path) or "top level"
    return f"{where}: {fault.message[:300]}"


def _format() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(FORMAT_FILE.read_text(encoding="utf-8")))


def _entry(name: str, body: Mapping[str, Any], *, place: str) -> Entry:
    try:
        suite = suite_named(body.get("suite", name))
    except ManifestError as error:
        raise ManifestError(f"{place}: {name}: {error}") from None
    sampling = body["sampling"]
    cases = tuple((case["id"], case["sha256"]) for case in body["cases"])
    scorer = body.get("scorer", suite.default_scorer)
    known = [*suite.scorers, *suite.token_scorers]
    for label, found, allowed in (
        ("scorer", [scorer], known),
        ("modes", body["modes"], suite.modes),
    ):
        if unknown := [value for value in found if value not in allowed]:
            raise ManifestError(
                f"{place}: {name}/{label}: found {', '.join(unknown)}; suite {suite.name} has "
                f"{', '.join(allowed)}"
            )
    counts = Counter(case_id for case_id, _ in cases)
    if repeated := [case_id for case_id, count in counts.items() if count > 1][:5]:
        raise ManifestError(
            f"{place}: {name}/cases: ids must be unique, found twice: {', '.join(repeated)}"
        )
    return Entry(
        name=name,
        suite=suite.name,
        source=Source(**body["source"]),
        modes=tuple(body["modes"]),
        template=body["template"],
        scorer=scorer,
        sampling=Sampling(
            temperature=sampling["temperature"],
            top_p=sampling["top_p"],
            max_tokens=sampling["max_tokens"],
            extra=canonical_json(sampling.get("extra", {})),
        ),
        seed_salt=body.get("seed_salt", ""),
        options=body.get("options", {}),
        cases=cases,
    )


def load_cases(manifest: Manifest) -> Mapping[str, tuple[Case, ...]]:
    """Return each entry's cases in manifest order, every digest verified.

    Raises ManifestError that names every case that is missing or changed (the first 20).
    """
    cases: dict[str, tuple[Case, ...]] = {}
    problems: list[Problem] = []
    for entry in manifest.entries.values():
        found, faults = entry_cases(entry)
        cases[entry.name] = found
        problems += faults
    if problems:
        listed = "\n  ".join(str(problem) for problem in problems[:20])
        raise ManifestError(
            f"manifest {manifest.name}: {len(problems)} cases are not what it froze:\n  {listed}\n"
            "restore the data of the stated revision (`evalharness data where`), or build a new "
            "manifest"
        )
    return cases


def entry_cases(entry: Entry) -> tuple[tuple[Case, ...], list[Problem]]:
    """Return an entry's sound cases, and a Problem for each other one.

    Raises ManifestError where the source as a whole cannot be read.
    """
    suite, source = suite_named(entry.suite), rows(entry.source)
    cases, problems = [], []
    for case_id, digest in entry.cases:
        if case_id not in source:
            label = f"not in {entry.source.label}"
            problems.append(Problem(entry.name, case_id, "missing", label))
            continue
        try:
            case = suite.to_case(case_id, source[case_id])
        except ManifestError as error:
            problems.append(Problem(entry.name, case_id, "malformed", str(error)))
            continue
        if case.digest != digest:
            label = f"its data has digest {case.digest[:16]}, the manifest says {digest[:16]}"
            problems.append(Problem(entry.name, case_id, "changed", label))
            continue
        cases.append(case)
    return tuple(cases), problems


def freeze_into(run_dir: Path, manifest: Manifest, cases: Mapping[str, Sequence[Case]]) -> None:
    """Keep the manifest and its cases in a run: RUN/manifest.json and RUN/cases/<entry>.jsonl.

    So a run can be scored again from its directory alone. Called again on the same run it
    verifies what lies there. Raises StoreError where that differs.
    """
    files = {run_dir / "manifest.json": manifest.text}
    for name, found in cases.items():
        files[_case_file(run_dir, name)] = "".join(_case_line(case) for case in found)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode("utf-8")
        if path.exists():
            if _stored_bytes(path) != data:
                raise StoreError(
                    f"{path}: differs from the manifest given now; a run keeps its cases: give "
                    "the manifest it was started with, or another --out"
                )
            continue
        _write(path, data)


def _stored_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; expected a file; restore it") from error


def frozen_manifest(run_dir: Path) -> Manifest:
    """Return the manifest kept in a run. Raises ManifestError where there is none."""
    return load_manifest(run_dir / "manifest.json")


def frozen_cases(run_dir: Path, entry: Entry) -> dict[str, Case]:
    """Return {case id: case} of one entry as kept in a run, every digest verified.

    Raises ManifestError where the file is absent, or a case is missing, changed or malformed.
    """
    path, digests = _case_file(run_dir, entry.name), dict(entry.cases)
    cases: dict[str, Case] = {}
    for number, case, digest in _read_cases(path):
        if digests.get(case.case_id) != digest:
            raise ManifestError(
                f"{path} line {number}: case {case.case_id} is not what RUN/manifest.json froze; "
                "restore the file"
            )
        cases[case.case_id] = case
    if missing := sorted(set(digests) - set(cases)):
        raise ManifestError(f"{path}: cases are missing: {', '.join(missing[:5])}; restore it")
    return cases


def _case_file(run_dir: Path, entry: str) -> Path:
    return run_dir / "cases" / f"{entry}.jsonl"


def _case_line(case: Case) -> str:
    fields = ("suite", "case_id", "cluster_id", "prompt", "expected")
    return canonical_json({name: getattr(case, name) for name in fields}) + "\n"


def _read_cases(path: Path) -> Iterator[tuple[int, Case, str]]:
    """Yield (line number, case, its digest). Raises ManifestError where a line is no case."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                case = Case(**json.loads(line))
                if not all(isinstance(value, str) for value in dataclasses.astuple(case)):
                    raise ValueError(f"line {number}: a field is not text")
                yield number, case, case.digest
    except OSError as error:
        raise ManifestError(
            f"{path}: {error.strerror}; a run keeps its cases there; restore the run directory"
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise ManifestError(f"{path}: not a case file ({error}); restore it") from error


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
