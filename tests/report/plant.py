"""Build run directories with known outcomes, byte for byte in the store's formats.

`plant_run` writes what a real factorial would have left: plan, server facts, responses with
their line checks, cell records, scores and NLL rows. Outcomes come from functions of the cell
and the case's index, so a test states exactly what it plants.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalharness.store.lines import decode_line, encode_line
from evalharness.types import CellKey, Request, Response, canonical_json, sha256_hex

OutcomeOf = Callable[[CellKey, int], str]
LogprobsOf = Callable[[CellKey, int], Sequence[float | None]]
AnswerOf = Callable[[CellKey, int, str], str]
UTC = "2026-11-29T20:00:00Z"


@dataclass(frozen=True)
class SuiteSpec:
    """One suite entry of a planted run: `suite` is nll for token rows."""

    name: str
    mode: str
    cases: int
    suite: str
    scorer: str


BFCL = SuiteSpec("bfcl", "tools", 80, "bfcl", "official/1")
SCHEMA = SuiteSpec("schema", "prompt", 80, "schema", "strict/1")
GSM8K = SuiteSpec("gsm8k", "chat", 80, "gsm8k", "strict/1")
NLL = SuiteSpec("nll", "decode", 80, "nll", "raw/1")


def paired(*, correct: int, wins: int, losses: int, arms: Sequence[str]) -> OutcomeOf:
    """Outcomes where every arm in `arms` loses the control's first `losses` correct cases.

    The control answers the first `correct` cases; the arms win the `wins` cases after those.
    """

    def outcome(key: CellKey, index: int) -> str:
        right = index < correct
        if key.arm in arms:
            right = losses <= index < correct + wins
        return "correct" if right else "wrong"

    return outcome


def even(key: CellKey, index: int) -> str:
    """Every arm answers alike: three of four cases are correct."""
    del key
    return "wrong" if index % 4 == 3 else "correct"


def flat_logprobs(key: CellKey, index: int) -> list[float | None]:
    """Sixteen tokens, the same log-probabilities for every arm."""
    del key
    return [-0.25 - 0.01 * ((index * 7 + token) % 13) for token in range(16)]


def plain_answer(key: CellKey, index: int, outcome: str) -> str:
    """An answer that shows the arm where it is wrong."""
    return f"#### {index}" if outcome == "correct" else f"#### {index} from {key.arm}"


@dataclass(frozen=True)
class Plant:
    """What to write. `drop` names rows to leave out of a cell's responses and scores."""

    suites: Sequence[SuiteSpec] = (BFCL,)
    factors: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: {"hc": ("off", "on"), "moe": ("off", "on")}
    )
    concurrency: Sequence[int] = (1, 4)
    replays: int = 1
    aa: bool = True
    declared: bool = True
    alpha: float = 0.025
    margins: Mapping[str, Any] = field(default_factory=lambda: {"bfcl": 0.1})
    sequence: str | Sequence[str] = "holm"
    outcomes: OutcomeOf = even
    logprobs: LogprobsOf = flat_logprobs
    answers: AnswerOf = plain_answer
    drop: Callable[[CellKey, int], bool] = lambda key, index: False
    case_prefix: str = "case"
    seed: int = 7
    manifest_name: str = "planted"
    created_utc: str = UTC


def arm_name(levels: Mapping[str, str], factors: Mapping[str, Sequence[str]]) -> str:
    """Names of the factors that are not at their first level, joined by +; control if none."""
    on = [
        name if len(factors[name]) == 2 else f"{name}.{level}"
        for name, level in levels.items()
        if level != factors[name][0]
    ]
    return "+".join(on) or "control"


def plant_run(run: Path, plant: Plant) -> Path:
    """Write RUN and return it."""
    manifest = json.dumps(_manifest(plant), indent=1) + "\n"
    plan = _plan(plant, sha256_hex(manifest))
    run.mkdir(parents=True)
    (run / "manifest.json").write_text(manifest)
    (run / "plan.json").write_text(json.dumps(plan, indent=1) + "\n")
    for launch, name in enumerate(plan["order"], start=1):
        _server(run, name, launch, plan)
        cells = itertools.product(plant.suites, plant.concurrency, range(plant.replays))
        for suite, concurrency, replicate in cells:
            key = CellKey(name, suite.name, suite.mode, concurrency, replicate)
            _cell(run, plant, suite, key, launch)
    write_sums(run)
    return run


def write_sums(run: Path) -> None:
    """Write RUN/SHA256SUMS over everything but the report."""
    files = sorted(file for file in run.rglob("*") if file.is_file() and file.name != "SHA256SUMS")
    lines = (
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(run).as_posix()}\n"
        for file in files
        if file.relative_to(run).parts[0] != "report"
    )
    (run / "SHA256SUMS").write_text("".join(lines))


def _manifest(plant: Plant) -> dict[str, Any]:
    return {
        "format": "evalharness/manifest/1",
        "name": plant.manifest_name,
        "suites": {
            suite.name: {
                "suite": suite.suite,
                "source": {"kind": "packaged", "id": "planted", "revision": "1"},
                "modes": [suite.mode],
                "template": f"{suite.suite}/1",
                "scorer": suite.scorer,
                "sampling": {"temperature": 0.0, "top_p": 1.0, "max_tokens": 96, "extra": {}},
                "cases": [
                    {"id": case_id(plant, i), "sha256": sha256_hex(f"{suite.name} {i}")}
                    for i in range(suite.cases)
                ],
            }
            for suite in plant.suites
        },
    }


def _plan(plant: Plant, manifest_sha256: str) -> dict[str, Any]:
    combinations = [
        dict(zip(plant.factors, combination, strict=True))
        for combination in itertools.product(*plant.factors.values())
    ]
    arms = [_arm(levels, plant.factors) for levels in combinations]
    names = [arm["name"] for arm in arms]
    return {
        "format": "evalharness/plan/1",
        "created_utc": plant.created_utc,
        "harness_version": "0.1.0",
        "declared": plant.declared,
        "alpha": plant.alpha,
        "margins": dict(plant.margins),
        "gate_concurrency": list(plant.concurrency),
        "sequence": plant.sequence if plant.sequence == "holm" else list(plant.sequence),
        "scorers": {suite.name: suite.scorer for suite in plant.suites},
        "replays": plant.replays,
        "concurrency": list(plant.concurrency),
        "seed": plant.seed,
        "order": [*(["aa"] if plant.aa else []), *reversed(names)],
        "control": "control",
        "aa": plant.aa,
        "factors": {name: list(levels) for name, levels in plant.factors.items()},
        "arms": arms,
        "arms_file": {"name": "planted.yaml", "sha256": "2" * 64},
        "manifest": {"name": plant.manifest_name, "sha256": manifest_sha256},
        "suites": {suite.name: _plan_suite(suite) for suite in plant.suites},
        "settings": {"request_timeout_s": 300},
    }


def _arm(levels: Mapping[str, str], factors: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    name = arm_name(levels, factors)
    return {
        "name": name,
        "levels": dict(levels),
        "argv": [f"--{factor}={level}" for factor, level in levels.items()],
        "env": {"VLLM_PLUGINS": "", "VLLM_API_KEY": "<redacted>"},
        "model_path": "model",
        "served_name": "demo",
        "python": None,
        "endpoint": None,
        "api_key_env": None,
        "digest": sha256_hex(name),
    }


def _plan_suite(suite: SuiteSpec) -> dict[str, Any]:
    return {
        "suite": suite.suite,
        "modes": [suite.mode],
        "cases": suite.cases,
        "template": f"{suite.suite}/1",
        "scorer": suite.scorer,
        "sampling": {"temperature": 0.0, "top_p": 1.0, "max_tokens": 96, "extra": {}},
    }


def _server(run: Path, name: str, launch: int, plan: Mapping[str, Any]) -> None:
    planned = next(
        arm for arm in plan["arms"] if arm["name"] == ("control" if name == "aa" else name)
    )
    folder = run / "arms" / name / f"{launch:03d}"
    folder.mkdir(parents=True)
    (folder / "server.log").write_text("started\n")
    facts = {
        "format": "evalharness/server/1",
        "arm": name,
        "launch": launch,
        "digest": planned["digest"],
        "engine": "vllm",
        "managed": True,
        "argv": ["python", "-m", "vllm.entrypoints.openai.api_server", *planned["argv"]],
        "env": planned["env"],
        "python": None,
        "pid": 4000 + launch,
        "base_url": f"http://127.0.0.1:{40000 + launch}",
        "started_utc": UTC,
        "ready_s": 30.0 + launch,
        "stopped": {"signal": "SIGTERM", "exit_code": 0, "after_s": 1.5},
        "vllm_version": "0.32.0",
        "system_fingerprint": None,
        "models": [{"id": "demo", "max_model_len": 2048}],
        "levels": {
            factor: {"level": level, "in_effect": True, "evidence": f"server log: {factor}={level}"}
            for factor, level in planned["levels"].items()
        },
        "model_files": {"model.safetensors": "5" * 64},
        "node": {"host": "host", "cpus": 2, "gpus": [], "driver": None},
        "gpu_before": [],
        "gpu_after": [],
        "runner": "v1",
        "route_hits": [_route_hits(launch)] if "hc" in name else [],
        "harness_version": "0.1.0",
    }
    (folder / "server.json").write_text(json.dumps(facts, indent=1) + "\n")


def _route_hits(launch: int) -> dict[str, Any]:
    return {
        "format": "evalharness/route_hits/1",
        "plugin": "kernels_sm70",
        "plugin_version": "0.1.0",
        "pid": 4000 + launch,
        "rank": 0,
        "vllm_version": "0.32.0",
        "device": "cpu",
        "flags": {"HC": True},
        "kernels": {"gdn_split.sm_70": "4" * 64},
        "routes": [{"route": "gdn_split", "m": m, "hits": 30 * m} for m in (4, 8, 16)],
        "fallbacks": [{"route": "gdn_split", "reason": "m", "m": 1, "hits": 30}],
        "updated_utc": UTC,
    }


def _cell(run: Path, plant: Plant, suite: SuiteSpec, key: CellKey, launch: int) -> None:
    place = Path(key.arm) / f"{launch:03d}" / f"{key.filename}.jsonl"
    responses = run / "responses" / place
    scores = run / "scores" / f"{suite.name}.{suite.scorer.replace('/', '-')}" / place
    responses.parent.mkdir(parents=True, exist_ok=True)
    scores.parent.mkdir(parents=True, exist_ok=True)
    lines, rows = [], []
    for index in range(suite.cases):
        if plant.drop(key, index):
            continue
        outcome = "correct" if suite.suite == "nll" else plant.outcomes(key, index)
        line, check = response_line(plant, key, index, outcome)
        lines.append(line)
        make = _nll_row if suite.suite == "nll" else _score_row
        rows.append(json.dumps(make(plant, suite, key, index, outcome, check)) + "\n")
    raw = b"".join(lines)
    responses.write_bytes(raw)
    scores.write_text("".join(rows))
    record = cell_record(key, launch, rows=len(lines), expected=suite.cases, raw=raw)
    responses.with_name(f"{key.filename}.cell.json").write_text(json.dumps(record, indent=1))


def cell_record(
    key: CellKey, launch: int, *, rows: int, expected: int, raw: bytes
) -> dict[str, Any]:
    """A complete cell's record over the raw bytes of its response file."""
    level = key.concurrency
    return {
        "format": "evalharness/cell/1",
        "arm": key.arm,
        "launch": launch,
        "suite": key.suite,
        "mode": key.mode,
        "concurrency": level,
        "replicate": key.replicate,
        "state": "complete",
        "reason": "",
        "rows": rows,
        "expected_rows": expected,
        "responses_sha256": hashlib.sha256(raw).hexdigest(),
        "started_utc": UTC,
        "wall_s": 400.0 / level,
        "status_counts": {"ok": rows},
        "prompt_tokens": 100 * rows,
        "output_tokens": 48 * rows,
        "prefix_cache_reset": "ok",
        "running_samples": [level] * 9 + [max(level - 1, 1)],
        "concurrency_reached": round(level - 0.03 * (level - 1), 3),
        "loop_lag_ms_p99": 1.2,
        "client_bound": False,
        "idle_share": 0.004,
    }


def case_id(plant: Plant, index: int) -> str:
    """Id of the planted case at `index`."""
    return f"{plant.case_prefix}-{index:04d}"


def response_line(plant: Plant, key: CellKey, index: int, outcome: str) -> tuple[bytes, str]:
    """One stored response line and its check. Unobserved rows are HTTP 500s."""
    choice = {
        "message": {"content": plant.answers(key, index, outcome)},
        "finish_reason": "stop",
    }
    failed = outcome == "unobserved"
    request = Request(
        case_id(plant, index),
        key.replicate,
        "/v1/chat/completions",
        canonical_json({"case": case_id(plant, index), "model": "demo"}),
    )
    line = encode_line(
        Response(
            case_id=request.case_id,
            replicate=key.replicate,
            request_digest=request.digest,
            endpoint=request.endpoint,
            request_body=request.body_json,
            status="http_error" if failed else "ok",
            http_code=500 if failed else 200,
            body="internal error" if failed else json.dumps({"choices": [choice]}),
            body_encoding="utf-8",
            error="HTTP 500" if failed else None,
            sent_ns=1_000_000 * index,
            first_byte_ns=1_000_000 * index + 400_000,
            done_ns=1_000_000 * index + 900_000,
            in_flight=key.concurrency,
            usage=canonical_json({"prompt_tokens": 100, "completion_tokens": 48}),
            finish_reason=None if failed else "stop",
        )
    )
    return line, decode_line(line[:-1]).check


def _score_row(
    plant: Plant, suite: SuiteSpec, key: CellKey, index: int, outcome: str, check: str
) -> dict[str, Any]:
    reasons = {"correct": "valid", "wrong": "value_error", "unobserved": "http_500"}
    known = outcome != "unobserved"
    return {
        "case_id": case_id(plant, index),
        "replicate": key.replicate,
        "outcome": outcome,
        "reason": reasons[outcome],
        "scorer": suite.scorer,
        "detail": {
            "output_tokens": 40 + index % 17 + (outcome == "wrong") if known else None,
            "truncated": outcome == "wrong" and index % 11 == 0 if known else None,
        },
        "response_digest": check,
    }


def _nll_row(
    plant: Plant, suite: SuiteSpec, key: CellKey, index: int, outcome: str, check: str
) -> dict[str, Any]:
    del outcome
    values = list(plant.logprobs(key, index))
    return {
        "case_id": case_id(plant, index),
        "replicate": key.replicate,
        "mode": key.mode,
        "outcome": "observed" if values else "unobserved",
        "reason": "valid" if values else "token_mismatch",
        "scorer": suite.scorer,
        "token_ids": [1000 + token for token in range(len(values))],
        "logprobs": values,
        "in_flight": [key.concurrency] * len(values),
        "pure": [token > 0 for token in range(len(values))],
        "top_logprobs": [],
        "clamped": sum(value is None for value in values),
        "response_digest": check,
    }
