"""Before a run goes on, and before it is closed: nothing of it may have changed meanwhile.

SHA256SUMS is written at the end of every stage. Written again without a look at the old one, it
would vouch for whatever was altered in between.
"""

from __future__ import annotations

from pathlib import Path

from evalharness.errors import StoreError
from evalharness.factorial.cells import RECORD_SUFFIX, complete_cells
from evalharness.store import Difference, differences, read_sums

MAX_NAMED = 20


def refuse_changed(run: Path) -> None:
    """Raise StoreError naming the files that are not what SHA256SUMS says, or that are gone.

    What the run makes again is let pass: deleted scores, and cells deleted with their record.
    Reports and files that are not the run's are not looked at.
    """
    sums = read_sums(run)
    if sums is None:
        return
    # A complete cell's responses agree with its record, and the record is compared here.
    verified = (path.relative_to(run).as_posix() for path in complete_cells(run).values())
    known = {name: sums[name] for name in verified if name in sums}
    found = [one for one in differences(run, sums, known=known) if not _made_again(run, one)]
    if found:
        more = [f"and {len(found) - MAX_NAMED} more"] if len(found) > MAX_NAMED else []
        named = "\n  ".join([*map(str, found[:MAX_NAMED]), *more])
        raise StoreError(
            f"{run} was changed after it was closed; it is not continued:\n  {named}\n"
            "restore these files, or give another --out"
        )


def _made_again(run: Path, difference: Difference) -> bool:
    if difference.kind != "gone":
        return False
    top, _, inner = difference.name.partition("/")
    if top != "responses":
        return top == "scores"
    path = run / top / inner
    stem = path.name.removesuffix(RECORD_SUFFIX).removesuffix(".jsonl")
    cell = (path.with_name(stem + RECORD_SUFFIX), path.with_name(f"{stem}.jsonl"))
    return not any(part.exists() for part in cell)


def has_unlisted_scores(run: Path) -> bool:
    """Say whether there are scores that SHA256SUMS does not vouch for: only scoring again can."""
    sums = read_sums(run) or {}
    scores = (run / "scores").glob("*/*/*/*.jsonl")
    return any(path.relative_to(run).as_posix() not in sums for path in scores)
