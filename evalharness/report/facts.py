"""Facts of a run beside its verdicts: concurrency reached, route hits, launches, provenance."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evalharness.redact import redact_argv, redact_env
from evalharness.runs import Run, StoredCell

# Fewer samples of a gauge (a cell of a few seconds) hit its start and end rather than its load.
MIN_SAMPLES = 5
# The gauge is read after steps: an answer of fewer of them is gone before it is counted.
MIN_STEPS = 8


def load_rows(run: Run) -> Iterator[dict[str, Any]]:
    """Concurrency really reached, one row a cell.

    `in_flight` is the client's time-weighted mean while C requests were left to ask, None where
    the suite has too few cases for that (`can_fill` False); `running_mean` the server's own
    vllm:num_requests_running, whose median (start and tail do not move it) counts beside the
    client's. `reached_share` is the smaller one over C; `reached_by` names what it rests on.
    The server's counts only with enough samples and answers long enough to be seen by it.
    """
    for cell in run.cells.values():
        record = cell.record
        samples = record["running_samples"]
        median = float(np.median(samples)) if samples else None
        # At C1 a count taken between two requests reads 0, however busy the client kept it.
        seen = median if _gauge_can_see(record) and cell.key.concurrency > 1 else None
        sides = {"client": record["concurrency_reached"], "server": seen}
        known = [value for value in sides.values() if value is not None]
        yield {
            **_key(cell),
            "launch": cell.launch,
            "state": cell.state,
            "in_flight": record["concurrency_reached"],
            "running_mean": float(np.mean(samples)) if samples else None,
            "running_median": median,
            "running_max": max(samples, default=None),
            "reached_share": min(known) / cell.key.concurrency if known else None,
            "reached_by": [name for name, value in sides.items() if value is not None],
            "can_fill": _can_fill(record, cell.key.concurrency),
            "idle_share": record["idle_share"],
            "loop_lag_ms_p99": record["loop_lag_ms_p99"],
            "client_bound": record["client_bound"],
            "prefix_cache_reset": record["prefix_cache_reset"],
            "wall_s": record["wall_s"],
            "output_tokens": record["output_tokens"],
            "status_counts": dict(record["status_counts"]),
        }


def _gauge_can_see(record: Mapping[str, Any]) -> bool:
    """Whether the server's count was read often enough, over answers of enough decode steps."""
    steps = record["output_tokens"] / record["rows"] if record["rows"] else 0.0
    return len(record["running_samples"]) >= MIN_SAMPLES and steps >= MIN_STEPS


def _can_fill(record: Mapping[str, Any], level: int) -> bool:
    """Whether the cell has cases enough to keep C requests in flight for longer than a moment."""
    return level == 1 or bool(record["expected_rows"] > level)


def stopped_rows(run: Run) -> Iterator[dict[str, Any]]:
    """Cells that do not count: aborted attempts, and incomplete cells with no complete one."""
    incomplete = [cell for cell in run.cells.values() if cell.state != "complete"]
    for cell in (*run.aborted, *incomplete):
        yield {
            **_key(cell),
            "launch": cell.launch,
            "state": cell.state,
            "reason": cell.reason,
            "rows": cell.record["rows"],
            "expected_rows": cell.record["expected_rows"],
            "file": cell.responses.relative_to(run.path).as_posix(),
            "became": _became(run, cell),
        }


def _became(run: Run, cell: StoredCell) -> str:
    """Say whether the cell that was stopped has another attempt that counts."""
    other = run.cells.get(cell.key)
    if other is None:
        return "not asked again: its cases are unobserved"
    if other is cell:
        return "nothing of it is used: its cases are unobserved"
    if other.state == "complete":
        return f"asked again in launch {other.launch}, complete, used"
    return f"asked again in launch {other.launch}, which is {other.state}"


def _key(cell: StoredCell) -> dict[str, Any]:
    key = cell.key
    return {
        "arm": key.arm,
        "suite": key.suite,
        "mode": key.mode,
        "concurrency": key.concurrency,
        "replicate": key.replicate,
    }


def route_rows(run: Run) -> Iterator[dict[str, Any]]:
    """Hits and fallbacks of each kernel route, summed over an arm's launches and ranks."""
    hits: dict[tuple[str, str, str, int], int] = defaultdict(int)
    for server in run.servers:
        for record in server["route_hits"]:
            for route in record["routes"]:
                hits[server["arm"], route["route"], "hit", route["m"]] += route["hits"]
            for fallback in record["fallbacks"]:
                kind = f"fallback: {fallback['reason']}"
                hits[server["arm"], fallback["route"], kind, fallback["m"]] += fallback["hits"]
    for (arm, route, kind, m), count in sorted(hits.items()):
        yield {"arm": arm, "route": route, "kind": kind, "m": m, "hits": count}


def throughput_rows(run: Run) -> list[dict[str, Any]]:
    """Output tokens and requests per second of each complete cell, for information.

    `tokens_ratio` is over the control's own cell; no gate uses any of it.
    """
    cells = {
        key: cell
        for key, cell in run.cells.items()
        if cell.state == "complete" and cell.record["wall_s"] > 0
    }
    rates = {key: c.record["output_tokens"] / c.record["wall_s"] for key, c in cells.items()}
    rows = []
    for key, cell in cells.items():
        base = rates.get(replace(key, arm=run.plan["control"]), 0)
        rows.append(
            {
                **_key(cell),
                "output_tokens_per_s": rates[key],
                "requests_per_s": cell.record["rows"] / cell.record["wall_s"],
                "tokens_ratio": rates[key] / base if base > 0 else None,
            }
        )
    return rows


def provenance(runs: Sequence[Run]) -> dict[str, Any]:
    """Digests, versions, argv, env, seeds and data of the runs, as stored.

    The writers redact secrets already; a report travels further than a run, so it asks again.
    """
    plan, sources = runs[0].plan, _sources(runs[0])
    return {
        "runs": [_run_facts(run) for run in runs],
        "manifest": dict(plan["manifest"]),
        "arms_file": dict(plan["arms_file"]),
        "suites": {
            name: {**suite, **({"source": sources[name]} if name in sources else {})}
            for name, suite in plan["suites"].items()
        },
        "settings": dict(plan["settings"]),
        "arms": [
            {
                "name": arm["name"],
                "levels": arm["levels"],
                "digest": arm["digest"],
                "argv": redact_argv(arm["argv"]),
                "env": redact_env(arm["env"]),
                "model_path": arm["model_path"],
                "endpoint": arm["endpoint"],
            }
            for arm in plan["arms"]
        ],
        "launches": [_launch(server) for run in runs for server in run.servers],
    }


def _sources(run: Run) -> dict[str, str]:
    """Return where each entry's cases come from; nothing where the run has no manifest.

    An entry may be called after a data set whose cases it does not have.
    """
    if not run.case_ids:
        return {}
    # load_run has checked it against its schema, and against the plan's digest
    manifest = json.loads((run.path / "manifest.json").read_bytes())
    return {name: _source(suite["source"]) for name, suite in manifest["suites"].items()}


def _source(source: Mapping[str, str]) -> str:
    """Write a data source: `word_problems@1`, `owner/data@revision (config, split)`."""
    part = ", ".join(source[name] for name in ("config", "split") if name in source)
    return f"{source['id']}@{source['revision']}" + (f" ({part})" if part else "")


def _run_facts(run: Run) -> dict[str, Any]:
    return {
        "plan_sha256": run.sha256,
        "created_utc": run.plan["created_utc"],
        "harness_version": run.plan["harness_version"],
        "seed": run.plan["seed"],
        "order": run.plan["order"],
        "notes": [note.text for note in run.notes],
    }


def _launch(server: Mapping[str, Any]) -> dict[str, Any]:
    kept = (
        "arm", "launch", "digest", "engine", "managed", "argv", "vllm_version", "runner",
        "system_fingerprint", "started_utc", "ready_s", "levels", "model_files", "node",
        "harness_version",
    )  # fmt: skip
    facts = {name: server[name] for name in kept}
    kernels: dict[str, str] = {}
    for record in server["route_hits"]:
        kernels.update(record["kernels"])
    facts["argv"] = redact_argv(server["argv"])
    return {**facts, "env": redact_env(server["env"]), "kernels": kernels}
