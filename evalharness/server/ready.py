"""Wait until a server can be asked, then let it describe itself; refuse one that is not the arm."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from evalharness.errors import ServerError
from evalharness.lenient_json import loads
from evalharness.server.evidence import level_evidence
from evalharness.server.facts import read_words, runner_of, write_server_json
from evalharness.types import canonical_json

if TYPE_CHECKING:
    from evalharness.server.server import Server

POLL_S = 0.25
FIRST_ANSWER_TIMEOUT_S = 300.0


async def until_ready(server: Server, started_s: float) -> None:
    """Poll until the server answers with our key and our model."""
    spec, process = server.spec, server.process
    assert process is not None
    end_s = started_s + spec.ready_timeout_s
    while True:
        if process.exited.is_set():
            code = (process.ending or {}).get("exit")
            raise ServerError(
                f"arm {spec.name!r}: the server ended (exit code {code}) before it was ready. "
                f"{process.log}:\n{process.last_lines()}"
            )
        if await server.api.get("/health", timeout_s=5.0) is not None and await server.api.models():
            server.record["ready_s"] = round(time.monotonic() - started_s, 2)
            return
        if time.monotonic() > end_s:
            raise ServerError(
                f"arm {spec.name!r}: not ready after {spec.ready_timeout_s:.0f} s "
                f"(server.ready_timeout_s). {process.log}:\n{process.last_lines()}"
            )
        await asyncio.sleep(POLL_S)


async def describe(server: Server) -> None:
    """Record what the server says of itself; refuse one that is not the arm."""
    spec, record = server.spec, server.record
    record["models"] = await server.api.models()
    names = [str(model.get("id")) for model in record["models"]]
    if spec.arm.served_name not in names:
        raise ServerError(
            f"arm {spec.name!r}: {server.base_url} serves {', '.join(names)[:200]}, "
            f"expected {spec.arm.served_name}"
        )
    version = await server.api.get_json("/version")
    record["vllm_version"] = version.get("version") if isinstance(version, dict) else None
    record["system_fingerprint"] = await _first_answer(server)
    words = await read_words(server.api, spec.folder, server.process)
    record["runner"] = runner_of(words.log)
    levels = dict(spec.arm.levels)
    record["levels"] = {
        factor: level_evidence(spec.factors[factor], level, words)
        for factor, level in levels.items()
    }
    write_server_json(spec.folder, record)
    wrong = {f: e for f, e in record["levels"].items() if e["in_effect"] is False}
    if wrong:
        texts = [f"{factor}: {e['level']} - {e['evidence']}" for factor, e in wrong.items()]
        raise ServerError(f"arm {spec.name!r}: level not in effect: {'; '.join(texts)}")


async def _first_answer(server: Server) -> str | None:
    """Ask for one token: a server that lists a model may still be unable to run it."""
    body = canonical_json(
        {"model": server.spec.arm.served_name, "prompt": "1", "max_tokens": 1, "temperature": 0}
    )
    answer = await server.api.post("/v1/completions", body, timeout_s=FIRST_ANSWER_TIMEOUT_S)
    if server.process is not None and (answer is None or answer[0] != 200):
        said = f"HTTP {answer[0]}: {answer[1][:300]}" if answer else "no answer"
        raise ServerError(
            f"arm {server.spec.name!r}: the server is up but cannot complete one token ({said}). "
            f"{server.process.log}:\n{server.process.last_lines()}"
        )
    value = loads(answer[1]) if answer and answer[0] == 200 else {}
    found = value.get("system_fingerprint") if isinstance(value, dict) else None
    return found if isinstance(found, str) else None
