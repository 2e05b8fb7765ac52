"""Append and read run directories: response lines, cell records, the lock, the digests.

Writing needs a running event loop (`evalharness.store.writer.ResponseWriter`); reading does not.
"""

from evalharness.store.lines import LineHead, StoredResponse, decode_line, encode_line
from evalharness.store.reader import iter_responses, read_responses
from evalharness.store.rundir import (
    make_directory,
    read_json,
    run_lock,
    write_atomically,
    write_json,
)
from evalharness.store.sums import (
    Difference,
    differences,
    read_sums,
    write_sums,
)

__all__ = [
    "Difference",
    "LineHead",
    "StoredResponse",
    "decode_line",
    "differences",
    "encode_line",
    "iter_responses",
    "make_directory",
    "read_json",
    "read_responses",
    "read_sums",
    "run_lock",
    "write_atomically",
    "write_json",
    "write_sums",
]
