"""What `evalharness trace` does: profile an arm, or read trace files, and write the attribution."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalharness.checked_json import read_checked
from evalharness.errors import IncompleteError, PlanError
from evalharness.store import make_directory
from evalharness.trace.attribution import attribute
from evalharness.trace.chrome import read_trace
from evalharness.trace.document import build_document, write_document
from evalharness.trace.families import DEFAULT, read_families
from evalharness.trace.purity import Counters, Purity, judge

if TYPE_CHECKING:
    from evalharness.trace.streams import Profiled

Document = dict[str, Any]


def read_files(
    paths: Sequence[Path],
    out: Path,
    *,
    families: Path = DEFAULT,
    concurrency: int | None = None,
    unproven: bool = False,
) -> Document:
    """Attribute trace files by themselves, offline; writes trace.json and trace.md into `out`.

    Raises StoreError (no trace), IncompleteError where prefill is in it, or where nothing shows
    that none is and `unproven` is not set.
    """
    make_directory(out)
    return _write(
        paths, out, families=families, concurrency=concurrency, unproven=unproven, run=None
    )


def trace_run(
    run: Path,
    name: str,
    *,
    asked: Mapping[str, Any],
    families: Path = DEFAULT,
    running: Mapping[str, Any] | None = None,
    say: Callable[[str], None],
) -> tuple[Document, Path]:
    """Profile arm `name` of RUN; returns the document and RUN/trace/<arm>/<number>.

    asked: the fields of asked.Asked but the model. running: those of session.Running.
    """
    from evalharness.trace import session
    from evalharness.trace.asked import Asked

    plan = read_checked(run / "plan.json", "plan", error=PlanError)
    digest = hashlib.sha256((run / "plan.json").read_bytes()).hexdigest()
    arm = session.planned_arm(plan, name)
    beside = session.Running(**running) if running is not None else None
    files = session.refuse_changed(arm) if beside is None else {}
    folder = _next_folder(run / "trace" / arm.name)
    job = session.Job(arm, run, folder, beside, files)
    found, how, record = asyncio.run(
        session.trace_arm(job, Asked(model=arm.served_name, **asked), say)
    )
    facts = {
        "plan_sha256": digest,
        "arm": arm.name,
        "arm_digest": arm.digest,
        "managed": beside is None,
        "vllm_version": record["vllm_version"],
    }
    document = _write(
        found,
        folder,
        families=families,
        concurrency=asked["concurrency"],
        unproven=False,
        run=facts,
        profile=_profile(asked, how),
        counters=(how.before, how.after),
    )
    return document, folder


def _profile(asked: Mapping[str, Any], how: Profiled) -> dict[str, Any]:
    """Return how the profile was asked for, as trace.json has it."""
    return {
        "concurrency": asked["concurrency"],
        "confirm": asked["confirm"],
        "confirmed": how.confirmed,
        "outputs": asked["outputs"],
        "profiled_outputs": list(how.profiled_outputs),
        "prompt_tokens": list(how.prompt_tokens) if how.prompt_tokens else None,
        "started_s": how.started_s,
        "stopped_s": how.stopped_s,
    }


def _next_folder(root: Path) -> Path:
    numbers = [int(path.name) for path in root.glob("*") if path.name.isdigit()]
    return root / f"{max(numbers, default=0) + 1:03d}"


def _write(
    paths: Sequence[Path],
    out: Path,
    *,
    families: Path,
    concurrency: int | None,
    unproven: bool,
    run: Mapping[str, Any] | None,
    profile: Mapping[str, Any] | None = None,
    counters: tuple[Counters, Counters] | None = None,
) -> Document:
    """Read, judge, attribute and write. A refused trace is written too, and then raised."""
    known = read_families(families)
    traces = [read_trace(path) for path in paths]
    before, after = counters or (None, None)
    purity = judge(traces, concurrency=concurrency, before=before, after=after)
    devices = [device for trace in traces for device in attribute(trace, known)]
    listed = {"name": families.name, "sha256": hashlib.sha256(families.read_bytes()).hexdigest()}
    document = build_document(traces, devices, purity, families=listed, run=run, profile=profile)
    write_document(document, out)
    _refuse(purity, out, unproven=unproven)
    return document


def _refuse(purity: Purity, out: Path, *, unproven: bool) -> None:
    if purity.pure is False:
        raise IncompleteError(
            f"{out / 'trace.json'}: refused: {'; '.join(purity.problems)}. The sums are there to "
            "look at and stand for no decode step; trace again with the server to yourself"
        )
    if purity.pure is None and not unproven:
        raise IncompleteError(
            f"{out / 'trace.json'}: nothing shows that no prefill is in it: no annotated steps "
            "(execute_context_0(0)_generation_N(N)) and no counters of the server. Trace a vLLM "
            "that annotates its steps, or accept it with --unproven"
        )
