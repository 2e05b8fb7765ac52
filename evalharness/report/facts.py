"""Facts of a run beside its verdicts: concurrency reached, route hits, launches, provenance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evalharness.redact import redact_argv, redact_env
from evalharness.runs import Run, StoredCell

# Fewer samples of a gauge (a cell of a few seconds) hit its start and end rather than its load.
MIN_SAMPLES = 5


def load_rows(run: Run) -> Iterator[dict[str, Any]]:
    """Concurrency really reached, one row a cell.

    `in_flight` is the client's mean over the cell before its tail; `running_mean` the server's
    own vllm:num_requests_running, whose median (start and tail do not move it) counts beside the
    client's: `reached_share` is the smaller one over C, the server's only where it was sampled
    often enough to mean anything.
    """
    for cell in run.cells.values():
        record = cell.record
        samples = record["running_samples"]
        median = float(np.median(samples)) if samples else None
        seen = median if len(samples) >= MIN_SAMPLES else None
        known = [v for v in (record["concurrency_reached"], seen) if v is not None]
        yield {
            **_key(cell),
            "launch": cell.launch,
            "state": cell.state,
            "in_flight": record["concurrency_reached"],
            "running_mean": float(np.mean(samples)) if samples else None,
            "running_median": median,
            "running_max": max(samples, default=None),
            "reached_share": min(known) / cell.key.concurrency if known else None,
            "idle_share": record["idle_share"],
            "loop_lag_ms_p99": record["loop_lag_ms_p99"],
            "client_bound": record["client_bound"],
            "prefix_cache_reset": record["prefix_cache_reset"],
            "wall_s": record["wall_s"],
            "output_tokens": record["output_tokens"],
            "status_counts": dict(record["status_counts"]),
        }


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
        }


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
    plan = runs[0].plan
    return {
        "runs": [_run_facts(run) for run in runs],
        "manifest": dict(plan["manifest"]),
        "arms_file": dict(plan["arms_file"]),
        "suites": {name: dict(suite) for name, suite in plan["suites"].items()},
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
