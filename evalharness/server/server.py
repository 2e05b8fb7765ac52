"""One launch of one arm: a started vLLM server, or an endpoint that somebody else runs."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from evalharness import __version__
from evalharness.errors import ServerError
from evalharness.redact import redact_argv, redact_env
from evalharness.server.api import ServerApi
from evalharness.server.environment import default_caches, server_environment
from evalharness.server.facts import route_hits_settled, write_server_json
from evalharness.server.node import VISIBLE, gpus, node_facts, visible, wait_for_memory
from evalharness.server.process import ServerProcess, kill_leftovers
from evalharness.server.ready import describe, until_ready
from evalharness.store import make_directory, write_atomically
from evalharness.types import Arm

RESET_TRIES = 20
RESET_WAIT_S = 0.5
MODULE = "vllm.entrypoints.openai.api_server"


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What to launch. `folder` is RUN/arms/<arm>/<launch>; `factors` are the file's settings.

    placement: where an executor put the launch; kept among the facts of its node.
    """

    arm: Arm
    name: str
    number: int
    folder: Path
    factors: Mapping[str, Mapping[str, Mapping[str, Any]]]
    model_files: Mapping[str, str]
    ready_timeout_s: float
    run_mark: str
    trust_env: bool = False
    gpu_baseline: Sequence[Mapping[str, Any]] | None = None
    placement: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Server:
    """A server that is ready. `record` is server.json's content."""

    spec: LaunchSpec
    base_url: str
    api_key: str | None
    api: ServerApi
    record: dict[str, Any]
    process: ServerProcess | None
    _session: aiohttp.ClientSession = field(repr=False)

    @property
    def died(self) -> asyncio.Event | None:
        """Set once a started server has ended; None for an endpoint."""
        return self.process.exited if self.process is not None else None

    async def alive(self) -> bool:
        """Ask whether the server still answers."""
        if self.process is not None and self.process.exited.is_set():
            return False
        if self.process is None:
            return await self.api.get("/v1/models") is not None
        # vLLM's front end lives on for a while when its engine is dead; /health knows.
        answer = await self.api.get("/health")
        return answer is not None and answer[0] == 200

    async def reset_prefix_cache(self) -> str:
        """Reset the prefix cache; tried again while the server is still letting go of blocks."""
        for _ in range(RESET_TRIES):
            state = await self.api.reset_prefix_cache()
            if state != "failed" or not await self.alive():
                return state
            await asyncio.sleep(RESET_WAIT_S)
        return "failed"

    async def stop(self, *, at_once: bool = False) -> None:
        """End the server, collect what it left, and complete server.json. StoreError (disk)."""
        answer = None
        if not at_once:
            await route_hits_settled(self.spec.folder)
            answer = await self.api.get("/metrics")
        await self._session.close()
        if self.process is not None:
            self.record["stopped"] = await self.process.stop(at_once=at_once)
            after = await asyncio.to_thread(gpus)
            self.record["gpu_after"] = visible(after, self.record["env"].get(VISIBLE))
        # Files last: a full disk must not keep a server alive.
        if answer is not None and answer[0] == 200:
            write_atomically(self.spec.folder / "metrics.end.txt", answer[1].encode())
        write_server_json(self.spec.folder, self.record)


async def open_server(spec: LaunchSpec) -> Server:
    """Start the arm's server, or connect to its endpoint, and wait until it can be asked.

    Raises ServerError (with the log's last lines) where it does not become ready, is not the
    server asked for, or does not have a level in effect.
    """
    return await (_connect(spec) if spec.arm.endpoint else _start(spec))


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _session(api_key: str | None, trust_env: bool) -> aiohttp.ClientSession:
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    # As for requests: a compressed answer would be a bomb's way in, and cookies carry state.
    return aiohttp.ClientSession(
        headers=headers,
        trust_env=trust_env,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def command(arm: Arm, port: int) -> list[str]:
    """Return the argv that serves the arm on a port of 127.0.0.1."""
    assert arm.model_path is not None
    return [
        arm.python or sys.executable,
        "-m",
        MODULE,
        "--model",
        arm.model_path,
        "--served-model-name",
        arm.served_name,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        *arm.argv,
    ]


async def _start(spec: LaunchSpec) -> Server:
    kill_leftovers(spec.run_mark)
    route_hits = (spec.folder / "route_hits").absolute()
    make_directory(route_hits)
    key = secrets.token_hex(24)
    env = server_environment(
        spec.arm,
        api_key=key,
        caches=default_caches(),
        route_hits=route_hits,
        run_mark=spec.run_mark,
    )
    # Another program may work on the host's other cards.
    mine = visible([dict(card) for card in spec.gpu_baseline or []], env.get(VISIBLE))
    before = visible(await wait_for_memory(mine), env.get(VISIBLE))
    port = free_port()
    argv = command(spec.arm, port)
    record = _record(spec, argv=argv, env=env, base_url=f"http://127.0.0.1:{port}", gpus=before)
    started_s = time.monotonic()
    process = await ServerProcess.start(argv, env, spec.folder / "server.log")
    record["pid"] = process.pid
    write_server_json(spec.folder, record)
    server = _server(spec, record, key, process)
    try:
        await until_ready(server, started_s)
        await describe(server)
    except BaseException:
        await asyncio.shield(server.stop(at_once=True))
        raise
    return server


async def _connect(spec: LaunchSpec) -> Server:
    arm = spec.arm
    assert arm.endpoint is not None
    key = endpoint_key(arm)
    record = _record(spec, argv=[], env={}, base_url=arm.endpoint, gpus=[])
    server = _server(spec, record, key, None)
    try:
        if not await server.api.models():
            raise ServerError(
                f"arm {spec.name!r}: {arm.endpoint}/v1/models lists no model; expected a running "
                "OpenAI-compatible server that accepts the key"
            )
        await describe(server)
    except BaseException:
        await server.stop(at_once=True)
        raise
    return server


def _server(
    spec: LaunchSpec, record: dict[str, Any], key: str | None, process: ServerProcess | None
) -> Server:
    session = _session(key, spec.trust_env)
    base_url = record["base_url"]
    api = ServerApi(base_url, session, api_key=key)
    return Server(spec, base_url, key, api, record, process, session)


def _record(
    spec: LaunchSpec,
    *,
    argv: Sequence[str],
    env: Mapping[str, str],
    base_url: str,
    gpus: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "format": "evalharness/server/1",
        "arm": spec.name,
        "launch": spec.number,
        "digest": spec.arm.digest,
        "engine": "vllm",
        "managed": spec.arm.endpoint is None,
        "argv": redact_argv(argv),
        "env": redact_env(env),
        "python": spec.arm.python,
        "pid": None,
        "base_url": base_url,
        "started_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "ready_s": None,
        "stopped": None,
        "vllm_version": None,
        "system_fingerprint": None,
        "models": [],
        "levels": {},
        "model_files": dict(spec.model_files),
        "node": {**node_facts(gpus), **(spec.placement or {})},
        "gpu_before": gpus,
        "gpu_after": [],
        "runner": None,
        "route_hits": [],
        "harness_version": __version__,
    }


async def endpoint_model(arm: Arm, *, trust_env: bool) -> str:
    """Ask an endpoint for the one model it serves. Raises ServerError."""
    assert arm.endpoint is not None
    key = endpoint_key(arm)
    async with _session(key, trust_env) as session:
        api = ServerApi(arm.endpoint, session, api_key=key)
        names = [str(model.get("id")) for model in await api.models()]
    if len(names) != 1:
        raise ServerError(
            f"{arm.endpoint}/v1/models: expected exactly one model, found {len(names)} "
            f"({', '.join(names)[:200]}); give endpoint.served_name, and check that it runs"
        )
    return names[0]


def endpoint_key(arm: Arm) -> str | None:
    """Return the endpoint's key from the environment, None where it takes none. ServerError."""
    if arm.api_key_env is None:
        return None
    key = os.environ.get(arm.api_key_env)
    if not key:
        raise ServerError(
            f"arm {arm.name!r}: environment variable {arm.api_key_env} is empty or not set; "
            f"export the key of {arm.endpoint} in it"
        )
    return key
