"""Ask a running server about itself. Every answer is bounded; an absent one is None."""

from __future__ import annotations

import re
from typing import Any

import aiohttp

from evalharness.lenient_json import loads
from evalharness.redact import REDACTED

MAX_ANSWER_BYTES = 8 << 20
ANSWER_TIMEOUT_S = 20.0
_RUNNING = re.compile(r"^vllm:num_requests_running(?:\{[^}]*\})? ([0-9.e+]+)$", re.M)


class ServerApi:
    """Side questions to one server, on a session of their own.

    api_key: replaced by `<redacted>` wherever an answer echoes it, since answers are kept.
    """

    def __init__(
        self, base_url: str, session: aiohttp.ClientSession, *, api_key: str | None = None
    ) -> None:
        self.base_url = base_url
        self._session = session
        self._api_key = api_key

    async def get(
        self, path: str, *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> tuple[int, str] | None:
        """Return (status, text) of a GET, or None where no answer came."""
        return await self._ask("GET", path, None, timeout_s)

    async def post(
        self, path: str, body: str | None = None, *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> tuple[int, str] | None:
        """Return (status, text) of a POST, or None where no answer came."""
        return await self._ask("POST", path, body, timeout_s)

    async def _ask(
        self, method: str, path: str, body: str | None, timeout_s: float
    ) -> tuple[int, str] | None:
        try:
            async with self._session.request(
                method,
                self.base_url + path,
                data=body.encode() if body is not None else None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as reply:
                raw = b""
                async for chunk in reply.content.iter_any():
                    raw += chunk
                    if len(raw) > MAX_ANSWER_BYTES:
                        reply.close()
                        return None
                text = raw.decode("utf-8", "replace")
                if self._api_key:
                    text = text.replace(self._api_key, REDACTED)
                return reply.status, text
        except (aiohttp.ClientError, OSError, EOFError, ValueError, TimeoutError):
            return None

    async def get_json(self, path: str) -> Any:
        """Return the JSON value of a 200 answer, else None."""
        answer = await self.get(path)
        return loads(answer[1]) if answer is not None and answer[0] == 200 else None

    async def running(self) -> int | None:
        """Return the server's own count of running requests, from /metrics."""
        answer = await self.get("/metrics", timeout_s=5.0)
        if answer is None or answer[0] != 200:
            return None
        counts = _RUNNING.findall(answer[1])
        return int(sum(float(count) for count in counts)) if counts else None

    async def models(self) -> list[dict[str, Any]]:
        """Return /v1/models' entries; empty where there is no such answer."""
        value = await self.get_json("/v1/models")
        data = value.get("data") if isinstance(value, dict) else None
        if not isinstance(data, list):
            return []
        kept = ("id", "root", "max_model_len", "owned_by")
        return [{key: m[key] for key in kept if key in m} for m in data if isinstance(m, dict)]

    async def reset_prefix_cache(self) -> str:
        """Ask once for a reset: `ok`, `failed` (the body says so) or `not-supported`."""
        answer = await self.post("/reset_prefix_cache")
        if answer is None:
            return "failed"
        if answer[0] in (404, 405, 501):
            return "not-supported"
        value = loads(answer[1])
        done = answer[0] == 200 and isinstance(value, dict) and value.get("success") is True
        return "ok" if done else "failed"
