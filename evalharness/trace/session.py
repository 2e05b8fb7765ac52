"""The server of a trace: the arm's own, started for it, or one that runs already."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalharness.arms import ArmsFile, with_digests
from evalharness.checked_json import read_checked
from evalharness.errors import PlanError, ServerError, StoreError
from evalharness.server import LaunchSpec, Server, open_server
from evalharness.store import make_directory
from evalharness.trace.asked import Asked
from evalharness.trace.streams import Profiled, profile
from evalharness.types import AA, CONTROL, Arm, canonical_json

READY_TIMEOUT_S = 900.0
TRACE_FILES = "*.pt.trace.json*"


@dataclass(frozen=True, slots=True)
class Running:
    """A server that somebody started: where it is, its key's variable, and where it writes."""

    base_url: str
    api_key_env: str | None
    trace_dir: Path


def planned_arm(plan: Mapping[str, Any], name: str) -> Arm:
    """Return the arm of a run's plan; `aa` is the control. Raises PlanError naming those it has."""
    wanted = CONTROL if name == AA else name
    for row in plan["arms"]:
        if row["name"] == wanted:
            return Arm(
                name=row["name"],
                levels=(),  # their settings stand in the arms file, which a run does not keep
                argv=tuple(row["argv"]),
                env=tuple(row["env"].items()),
                model_path=row["model_path"],
                served_name=row["served_name"],
                python=row["python"],
                endpoint=row["endpoint"],
                api_key_env=row["api_key_env"],
                digest=row["digest"],
            )
    known = ", ".join(row["name"] for row in plan["arms"])
    raise PlanError(f"--arm {name}: the run has {known}")


def refuse_changed(arm: Arm) -> Mapping[str, str]:
    """Return the model files' digests; PlanError where the arm is not what the run served.

    An endpoint has no digest of files to compare.
    """
    if arm.endpoint is not None:
        return {}
    file = ArmsFile("the run's plan", "", {}, {}, (arm,), False, "blocked", None, 0.0, {})
    found, facts = with_digests(file)
    now = found.arms[0].digest
    if now != arm.digest:
        raise PlanError(
            f"arm {arm.name!r}: its digest is {now[:12]} now and {arm.digest[:12]} in the run's "
            "plan: model files, vLLM, plugins or kernels have changed since. Expected the build "
            "that the run measured; restore it, or run the factorial again"
        )
    return facts[arm.name].model_files


@dataclass(frozen=True, slots=True)
class Job:
    """One arm of RUN to trace into `folder`. `running` None: its server is started for it."""

    arm: Arm
    run: Path
    folder: Path
    running: Running | None
    model_files: Mapping[str, str]


async def trace_arm(
    job: Job, asked: Asked, say: Callable[[str], None]
) -> tuple[list[Path], Profiled, Mapping[str, Any]]:
    """Profile one arm; returns the trace files, how it went, and server.json.

    Raises ServerError (not ready, not the arm, no streaming, no profile endpoint),
    IncompleteError (a stream ended too early), StoreError.
    """
    traces = job.folder if job.running is None else job.running.trace_dir
    make_directory(job.folder)
    known = _files(traces)
    server = await open_server(_spec(job))
    try:
        if job.running is not None:
            refuse_other_server(job.arm, server.record, job.run)
        say(f"{server.base_url} is ready")
        how = await profile(server.api, asked, api_key=server.api_key, say=say)
    finally:
        await server.stop()
    found = sorted(_files(traces) - known)
    if not found:
        raise StoreError(
            f"{traces}: the server wrote no {TRACE_FILES} there; expected one per rank. "
            f"{_where(server)}"
        )
    return found, how, server.record


def _where(server: Server) -> str:
    if server.process is not None:
        return f"See {server.process.log}"
    return "Give --trace-dir the torch_profiler_dir that the server was started with"


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.glob(TRACE_FILES) if path.is_file()}


def _spec(job: Job) -> LaunchSpec:
    arm, running = job.arm, job.running
    if running is not None:
        arm = dataclasses.replace(
            arm, endpoint=running.base_url.rstrip("/"), api_key_env=running.api_key_env
        )
    elif arm.endpoint is not None:
        raise ServerError(
            f"arm {arm.name!r} is served by somebody else at {arm.endpoint}; give --base-url and "
            "--trace-dir, the folder (readable here) in which that server writes its traces"
        )
    else:
        arm = dataclasses.replace(arm, argv=(*arm.argv, *profiler_arguments(job.folder)))
    return LaunchSpec(
        arm=arm,
        name=arm.name,
        number=1,
        folder=job.folder,
        factors={},
        model_files=job.model_files,
        ready_timeout_s=READY_TIMEOUT_S,
        run_mark=str(job.run.resolve()),
    )


def profiler_arguments(folder: Path) -> tuple[str, ...]:
    """Return vLLM's arguments for a small trace of the workers alone: no Python stacks."""
    config = {
        "profiler": "torch",
        "torch_profiler_dir": str(folder.absolute()),
        "torch_profiler_with_stack": False,
        "torch_profiler_dump_cuda_time_total": False,
        "ignore_frontend": True,
    }
    return ("--profiler-config", canonical_json(config))


def refuse_other_server(arm: Arm, record: Mapping[str, Any], run: Path) -> None:
    """Raise ServerError where a running server is visibly not the arm that the run measured.

    Compared with the arm's launches in RUN: vLLM's version, the fingerprint and the model's root.
    """
    for file in sorted((run / "arms" / arm.name).glob("*/server.json")):
        known = read_checked(file, "server", error=StoreError)
        for what in ("vllm_version", "system_fingerprint"):
            if None not in (known[what], record[what]) and known[what] != record[what]:
                raise ServerError(
                    f"{record['base_url']}: {what} {record[what]!r}, the run's {file} has "
                    f"{known[what]!r}; expected the server of arm {arm.name!r}"
                )
        roots = [
            {str(one.get("root")) for one in facts["models"] if one.get("root")}
            for facts in (known, record)
        ]
        if all(roots) and not roots[0] & roots[1]:
            raise ServerError(
                f"{record['base_url']}: serves {', '.join(sorted(roots[1]))}, the run's {file} has "
                f"{', '.join(sorted(roots[0]))}; expected the server of arm {arm.name!r}"
            )
