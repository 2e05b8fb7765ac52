"""Output that a user names: whole or not at all, never over its own input, never over a device."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from evalharness.errors import DiskFullError, StoreError
from evalharness.store.rundir import disk_error

_numbers = itertools.count()


@contextlib.contextmanager
def output_file(path: Path, *, inputs: Sequence[Path] = ()) -> Iterator[BinaryIO]:
    """Open `path` for writing: what stood there stays until the block has ended without an error.

    A symbolic link is followed. What is no regular file (a pipe, a terminal, a device) is written
    in place: a rename would put a file where it was. Opened at once, so that a place that cannot
    be written is refused before any work. Raises StoreError where it cannot be written, or is one
    of `inputs`; DiskFullError where the disk is full.
    """
    _refuse_inputs(path, inputs)
    # Not Path.resolve: that raises on a link to itself, which the open below names.
    final = Path(os.path.realpath(path))
    partial = Path(f"{final}.{os.getpid()}-{next(_numbers)}.partial")
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                yield stream
            return
        try:
            with partial.open("wb") as stream:
                yield stream
            partial.replace(final)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
    except BrokenPipeError:
        raise  # the reader of a pipe went away: the command line knows what to do
    except OSError as error:
        if error.filename is not None and str(error.filename) not in (str(path), str(partial)):
            raise  # the block's own trouble with another file
        raise _refusal(path, error) from error


def _refuse_inputs(path: Path, inputs: Sequence[Path]) -> None:
    """Raise StoreError where writing `path` would destroy one of the files that are read."""
    for source in inputs:
        with contextlib.suppress(OSError):
            if path.samefile(source):
                raise StoreError(
                    f"{path}: is the input {source} itself, which writing would destroy; give "
                    "another file"
                )


def _refusal(path: Path, error: OSError) -> StoreError:
    found = disk_error(path, error, "written")
    if isinstance(found, DiskFullError):
        return found
    return StoreError(f"{found}; give a writable place")
