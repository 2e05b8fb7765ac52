"""Read a server's own words and write server.json."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalharness.lenient_json import loads
from evalharness.redact import is_secret_name
from evalharness.server.api import ServerApi
from evalharness.server.evidence import ServerWords
from evalharness.server.process import ServerProcess
from evalharness.store import write_atomically, write_json

MAX_LOG_BYTES = 4 << 20
MAX_ROUTE_FILES = 256


async def read_words(api: ServerApi, folder: Path, process: ServerProcess | None) -> ServerWords:
    """Collect what a server says of itself; keeps /server_info and /metrics beside server.json."""
    info = await api.get_json("/server_info?config_format=json")
    info = info if isinstance(info, dict) else {}
    if info:
        await asyncio.to_thread(write_json, folder / "server_info.json", _plain(info))
    metrics = await api.get("/metrics")
    if metrics is not None and metrics[0] == 200:
        await asyncio.to_thread(
            write_atomically, folder / "metrics.ready.txt", metrics[1].encode("utf-8")
        )
    config, env = info.get("vllm_config"), info.get("vllm_env")
    return ServerWords(
        config=config if isinstance(config, dict) else {},
        env=env if isinstance(env, dict) else {},
        log=read_log(process.log) if process is not None else "",
        process_env=process_environment(process.pid) if process is not None else {},
        routes=read_route_hits(folder),
        models=await api.models(),
        executable=_executable(process.pid) if process is not None else "",
    )


def _plain(value: Any) -> Any:
    """Return the value for a record: secret-looking entries replaced, odd floats as text."""
    if isinstance(value, dict):
        return {
            str(key): "<redacted>" if item and is_secret_name(str(key)) else _plain(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def read_log(path: Path) -> str:
    """Return the beginning of the server's log, where it states its configuration."""
    with contextlib.suppress(OSError), path.open("rb") as stream:
        return stream.read(MAX_LOG_BYTES).decode("utf-8", "replace")
    return ""


def process_environment(pid: int) -> dict[str, str]:
    """Return a process's environment as the kernel shows it; empty once it is gone."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return {}
    return dict(item.split("=", 1) for item in raw.split("\0") if "=" in item)


def _executable(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return ""


def runner_of(log: str) -> str | None:
    """Return v1 or v2 where the log says which model runner serves."""
    if "using the V1 model runner" in log or "Using V1 Model Runner" in log:
        return "v1"
    if "Using V2 Model Runner" in log or "Using Model Runner V2" in log:
        return "v2"
    return None


async def route_hits_settled(folder: Path) -> None:
    """Wait until the processes' route-hit files hold still, so that the last steps are in them.

    They are written about twice a second while something changes, and an engine that is stopped
    may have no time for a last one. Returns at once where there are none, and after 4 s anyway.
    """
    before: list[dict[str, Any]] = []
    for _ in range(5):
        now = read_route_hits(folder)
        if now == before:
            return
        before = now
        await asyncio.sleep(0.8)


def read_route_hits(folder: Path) -> list[dict[str, Any]]:
    """Return the counters that the server's processes wrote, one object per process."""
    found: list[dict[str, Any]] = []
    for path in sorted((folder / "route_hits").glob("*.json"))[:MAX_ROUTE_FILES]:
        try:
            value = loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
        if isinstance(value, dict) and value.get("format") == "evalharness/route_hits/1":
            found.append(value)
    return found


def write_server_json(folder: Path, record: Mapping[str, Any]) -> None:
    """Write server.json with the route hits of this moment."""
    write_json(folder / "server.json", {**record, "route_hits": read_route_hits(folder)})


def read_server_json(path: Path) -> dict[str, Any]:
    """Return a stored server.json."""
    value: dict[str, Any] = json.loads(path.read_bytes())
    return value
