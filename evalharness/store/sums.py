"""SHA256SUMS: the digests of a run at the end of a stage, and which files differ from them now."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from evalharness.errors import StoreError
from evalharness.store.rundir import LOCK_NAME, write_atomically

SUMS_NAME, PARTIAL = "SHA256SUMS", ".partial"
# What a verdict rests on. Reports are written again at will, and other files are the user's own.
EVIDENCE = ("plan.json", "manifest.json", "cases", "arms", "responses", "scores")
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


class Difference(NamedTuple):
    """A listed file of the run that is not what SHA256SUMS says."""

    name: str
    kind: Literal["changed", "gone"]

    def __str__(self) -> str:
        if self.kind == "gone":
            return f"{self.name}: listed in {SUMS_NAME}, not found"
        return f"{self.name}: changed since {SUMS_NAME} was written"


def read_sums(run: Path) -> dict[str, str] | None:
    """Return digest by name relative to RUN; None where the run has no SHA256SUMS.

    Raises StoreError naming the first line that is not `<64 hex digits>  <name>`.
    """
    path = run / SUMS_NAME
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: cannot be read ({error}); restore the run's own file") from error
    sums: dict[str, str] = {}
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        match = _LINE.fullmatch(line)
        name = match[2] if match else ""
        if match is None or not _is_inner(name) or name in sums:
            raise StoreError(
                f"{path} line {number}: {line[:80]!r}; expected 64 hex digits, two spaces and the "
                "name of a file of the run, each once; restore the run's own file"
            )
        sums[name] = match[1]
    return sums


def _is_inner(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name


def is_evidence(name: str) -> bool:
    """Say whether a file of the run, named relative to RUN, is one that verdicts rest on.

    A file half written when its process was killed is none.
    """
    return name.partition("/")[0] in EVIDENCE and not name.endswith(PARTIAL)


def digest_of(file: Path) -> str | None:
    """Return a file's SHA-256, links followed; None where no file is. StoreError (unreadable)."""
    try:
        if not file.is_file():
            return None
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error.strerror}; restore it") from error


def differences(
    run: Path, sums: Mapping[str, str], *, known: Mapping[str, str]
) -> Iterator[Difference]:
    """Yield the listed files of evidence that changed or are gone.

    known: digests by name of files that were hashed already; they are not read again.
    """
    for name, digest in sums.items():
        if is_evidence(name):
            found = known.get(name) or digest_of(run / name)
            if found != digest:
                yield Difference(name, "changed" if found else "gone")


def write_sums(run: Path) -> None:
    """Write SHA256SUMS over every file of the run, in name order (`sha256sum -c` reads it).

    A line of evidence that is there stays, whatever became of its file: writing the list again
    must not make what changed since then look sound. Raises StoreError.
    """
    sums = {name: digest for name, digest in (read_sums(run) or {}).items() if is_evidence(name)}
    for name, path in _files(run):
        if name not in sums and (digest := digest_of(path)):
            sums[name] = digest
    lines = [f"{sums[name]}  {name}\n" for name in sorted(sums, key=lambda one: one.split("/"))]
    write_atomically(run / SUMS_NAME, "".join(lines).encode("utf-8"))


def _files(run: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name relative to RUN, path) of the files to list.

    Names that a line of UTF-8 cannot hold are left out: the harness writes none.
    """
    for path in _walk(run, run, above=frozenset()):
        name = path.relative_to(run).as_posix()
        hidden = name in (SUMS_NAME, LOCK_NAME) or path.name.startswith(".")
        hidden = hidden or name.endswith(PARTIAL)
        if not hidden and "\n" not in name and name.encode("utf-8", "ignore").decode() == name:
            yield name, path


def _walk(run: Path, folder: Path, *, above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    """Yield the files below a folder, also where evidence was moved and a link left in its place.

    above: device and inode of the folders above, so that links in a circle end.
    """
    here = folder.stat()
    within = above | {(here.st_dev, here.st_ino)}
    try:
        inside = list(folder.iterdir())
    except PermissionError as error:
        name = folder.relative_to(run).as_posix()
        if is_evidence(name):
            raise StoreError(f"{folder}: {error.strerror}; make it readable") from error
        return  # such as lost+found, where RUN is a disk of its own
    for path in inside:
        if not path.is_dir():
            if path.is_file():
                yield path
            continue
        name, there = path.relative_to(run).as_posix(), path.stat()
        if (there.st_dev, there.st_ino) in within:
            continue
        if is_evidence(name) or not path.is_symlink():
            yield from _walk(run, path, above=within)
