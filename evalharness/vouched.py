"""What SHA256SUMS vouches for: the files that a verdict rests on, and those that nobody listed.

A run is closed with SHA256SUMS. What was read but is not in it could be anybody's, so it takes
the plan's force away like a file that changed; a run that was cut off lawfully has none yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from evalharness.margins import margin_for
from evalharness.store import differences, read_sums
from evalharness.stored_cell import StoredCell
from evalharness.types import AA, CellKey


class Note(NamedTuple):
    """Something about the directory as a whole; `changed` files take the plan's force away."""

    kind: Literal["changed", "absent"]
    text: str


def score_name(responses: Path, suite: str, scorer: str) -> str:
    """Return the name of a response file's scores; both are relative to RUN."""
    folder = f"{suite}.{scorer.replace('/', '-')}"
    return Path("scores", folder, *responses.parts[1:]).as_posix()


def server_files(run: Path) -> list[Path]:
    """Return the facts files of the launches, in order."""
    return sorted((run / "arms").glob("*/*/server.json"))


def counted_files(
    run: Path,
    plan: Mapping[str, Any],
    cells: Collection[StoredCell],
    servers: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, str]]:
    """Yield (name relative to RUN, digest or "") of the files that verdicts rest on.

    The digest is there where reading the file has verified it. servers: of `server_files`.
    """
    if (run / "manifest.json").exists():
        yield "manifest.json", plan["manifest"]["sha256"]
    complete = [cell for cell in cells if cell.state == "complete"]
    for cell in complete:
        responses = cell.responses.relative_to(run)
        yield responses.as_posix(), cell.record["responses_sha256"]
        yield f"{responses.as_posix().removesuffix('.jsonl')}.cell.json", ""
        yield score_name(responses, cell.key.suite, cell.scorer), ""
    launches = {cell.launch for cell in complete}
    for file, server in zip(server_files(run), servers, strict=True):
        if server["launch"] in launches:
            yield file.relative_to(run).as_posix(), ""


def sums_notes(
    run: Path, plan: Mapping[str, Any], counted: Mapping[str, str], complete: Collection[CellKey]
) -> Iterator[Note]:
    """Yield what is wrong with the run under its SHA256SUMS. Raises StoreError (unreadable).

    counted: of `counted_files`; complete: the complete cells, joined ones included.
    """
    sums = read_sums(run)
    if sums is None:
        # `factorial` closes every run that it ends; only one that was cut off has no list.
        if _has_judged_arm(plan, complete):
            yield Note(
                "changed",
                "SHA256SUMS: absent though an arm's gates are all complete; restore it, or run the "
                "`evalharness factorial` command again, which checks the run and closes it",
            )
        else:
            yield Note("absent", "SHA256SUMS is absent: the run had not ended when this was read")
        return
    known = {name: digest for name, digest in counted.items() if digest}
    for difference in differences(run, sums, known=known):
        yield Note("changed", str(difference))
    unlisted = [name for name in counted if name not in sums]
    if unlisted:
        more = f" and {len(unlisted) - 3} more" if len(unlisted) > 3 else ""
        names = ", ".join(unlisted[:3])
        yield Note(
            "changed",
            f"{names}{more}: read, but SHA256SUMS does not list it; "
            "a run that was cut off is closed by its `evalharness factorial` command",
        )


def _has_judged_arm(plan: Mapping[str, Any], complete: Collection[CellKey]) -> bool:
    """Say whether some arm could get its verdict: its gates, the control's and the A/A's are there.

    One arm in one replay is enough: a cell that no verdict of it needs may be gone.
    """
    gates = [
        (entry, mode, width)
        for entry, suite in plan["suites"].items()
        for mode in suite["modes"]
        if margin_for(plan["margins"], entry, mode, suite["suite"]) is not None
        for width in plan["gate_concurrency"]
    ]
    beside = [plan["control"], *([AA] if plan["aa"] else [])]
    candidates = [arm["name"] for arm in plan["arms"] if arm["name"] not in beside]
    return bool(gates) and any(
        all(CellKey(arm, *gate, replicate) in complete for arm in (one, *beside) for gate in gates)
        for one in candidates
        for replicate in range(plan["replays"])
    )
