"""Writes a run directory's responses without a server, for tests and benchmarks of scoring."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalharness.bfcl.gold import oracle_calls
from evalharness.bfcl.names import api_names
from evalharness.manifest import Entry, Manifest, freeze_into
from evalharness.registry import suite_named
from evalharness.store.lines import encode_line
from evalharness.types import Case, CellKey, RequestContext, Response

Reply = Callable[[Case], str]  # case -> body of the chat completion


def chat_body(
    content: str | None,
    *,
    calls: Sequence[tuple[str, str]] = (),
    finish_reason: str = "stop",
    output_tokens: int = 7,
) -> str:
    """Return the body of a chat completion with tool calls (name, arguments text)."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": f"call-{index}", "type": "function", "function": {"name": n, "arguments": a}}
            for index, (n, a) in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    usage = {"prompt_tokens": 100, "completion_tokens": output_tokens}
    return json.dumps({"id": "x", "model": "m", "choices": [choice], "usage": usage})


def bfcl_oracle(case: Case) -> str:
    """Return a body that satisfies a BFCL case; no call where it has no gold or none can."""
    asked = json.loads(case.prompt)
    functions, golds = json.loads(asked["functions"]), json.loads(case.expected)["gold"]
    names = api_names(function["name"] for function in functions)
    calls = oracle_calls(functions, golds) if golds else None
    if asked["category"] == "live_relevance":
        calls = ((functions[0]["name"], {}),)
    texts = [(names[str(name)], json.dumps(arguments)) for name, arguments in calls or ()]
    body = chat_body(None if texts else "none fits", calls=texts)
    return body.replace('"finish_reason": "stop"', '"finish_reason": "tool_calls"')


def make_response(entry: Entry, case: Case, body: str, *, mode: str, **changes: Any) -> Response:
    """Return the stored response of a case; `changes` replace fields."""
    context = RequestContext("m", mode, entry.sampling, 1, 0, entry.template)
    request = suite_named(entry.suite).request(case, context)
    fields: dict[str, Any] = {
        "case_id": case.case_id,
        "replicate": 0,
        "request_digest": request.digest,
        "endpoint": request.endpoint,
        "request_body": request.body_json,
        "status": "ok",
        "http_code": 200,
        "body": body,
        "body_encoding": "utf-8",
        "error": None,
        "sent_ns": 1,
        "first_byte_ns": 2,
        "done_ns": 3,
        "in_flight": 1,
        "usage": '{"completion_tokens":7,"prompt_tokens":100}',
        "finish_reason": "stop",
    }
    return Response(**{**fields, **changes})


def write_cell(run_dir: Path, key: CellKey, lines: Iterator[bytes] | Sequence[bytes]) -> Path:
    """Write a complete cell of launch 1; returns its response file."""
    folder = run_dir / "responses" / key.arm / "001"
    folder.mkdir(parents=True, exist_ok=True)
    path, digest, rows = folder / f"{key.filename}.jsonl", hashlib.sha256(), 0
    with path.open("wb") as file:
        for line in lines:
            file.write(line)
            digest.update(line)
            rows += 1
    record = {
        "format": "evalharness/cell/1",
        "arm": key.arm,
        "launch": 1,
        "suite": key.suite,
        "mode": key.mode,
        "concurrency": key.concurrency,
        "replicate": key.replicate,
        "state": "complete",
        "reason": "",
        "rows": rows,
        "expected_rows": rows,
        "responses_sha256": digest.hexdigest(),
        "started_utc": "2026-01-01T00:00:00Z",
        "wall_s": 1.0,
        "status_counts": {"ok": rows},
        "prompt_tokens": 0,
        "output_tokens": 0,
        "prefix_cache_reset": "ok",
        "running_samples": [],
        "concurrency_reached": None,
        "loop_lag_ms_p99": None,
        "client_bound": False,
        "idle_share": None,
    }
    (folder / f"{key.filename}.cell.json").write_text(json.dumps(record))
    return path


def write_run(
    run_dir: Path,
    manifest: Manifest,
    cases: Mapping[str, Sequence[Case]],
    *,
    replies: Mapping[str, Reply],
    arms: Sequence[str] = ("control",),
    concurrency: Sequence[int] = (1,),
) -> list[Path]:
    """Write every cell of the entries that `replies` names; returns the response files."""
    freeze_into(run_dir, manifest, cases)
    written = []
    for arm in arms:
        for name, reply in replies.items():
            entry = manifest.entries[name]
            for mode in entry.modes:
                for level in concurrency:
                    lines = [
                        encode_line(make_response(entry, case, reply(case), mode=mode))
                        for case in cases[name]
                    ]
                    written.append(write_cell(run_dir, CellKey(arm, name, mode, level, 0), lines))
    return written
