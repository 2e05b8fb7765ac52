"""Enough open files for the connections of a cell: our own limit must not look like a fault."""

from __future__ import annotations

import resource

from evalharness.errors import HarnessError

SPARE_FILES = 128


def require_open_files(concurrency: int) -> None:
    """Raise the soft limit of open files to what the run needs. Raises HarnessError.

    A connection that our own limit refuses would be stored as the server's transport error.
    """
    needed = concurrency + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise HarnessError(
            f"{hard} open files are allowed, concurrency {concurrency} needs {needed}; "
            f"raise the limit (ulimit -Hn {needed}) or lower --concurrency"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
