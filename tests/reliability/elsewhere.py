"""Other hosts: no redirect is followed, and a proxy in the environment is used only when asked."""

from __future__ import annotations

import asyncio
import os
from unittest import mock

from evalharness.client import Client, Prepared
from evalharness.server.api import ServerApi
from evalharness.server.server import _session
from evalharness.types import Request, canonical_json
from tests.reliability.chaos_server import KEY, ChaosServer
from tests.reliability.tally import Tally

PREPARED = Prepared(
    Request("c", 0, "/v1/completions", canonical_json({"model": "fake", "prompt": "1"}), False)
)
SIDE_QUESTIONS = ("/health", "/v1/models", "/metrics", "/server_info", "/version")


async def _send(url: str, *, trust_env: bool = False) -> str:
    async with Client(
        url, model="fake", concurrency=1, api_key=KEY, timeout_s=5, trust_env=trust_env
    ) as client:
        return (await client.send(PREPARED, 1)).status


async def _side(url: str, *, trust_env: bool = False) -> list[tuple[int, str] | None]:
    async with _session(KEY, trust_env) as session:
        api = ServerApi(url, session, api_key=KEY)
        return [await api.get(path, timeout_s=5) for path in SIDE_QUESTIONS]


async def redirects() -> Tally:
    """Answer everything with a redirect to another server, which must never be contacted."""
    tally = Tally("redirect to another host")
    async with ChaosServer("good") as other:
        for host in ("127.0.0.1", "localhost", "127.0.0.2"):
            location = other.base_url.replace("127.0.0.1", host) + "/v1/completions"
            async with ChaosServer("redirect", location=location) as server:
                tally.times += 1 + len(SIDE_QUESTIONS)
                status = await _send(server.base_url)
                tally.check(status == "http_error", f"the outcome is {status}")
                answers = await _side(server.base_url)
                tally.check(all(a is None or a[0] == 307 for a in answers), f"{answers}")
        tally.check(other.contacts == 0, f"{other.contacts} connections went to the other host")
    return tally


async def proxies() -> Tally:
    """Set every proxy variable; the proxy must see nothing unless trust_env is asked for."""
    tally = Tally("proxy in the environment")
    async with ChaosServer("good") as proxy, ChaosServer("good") as server:
        names = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")
        env = {**dict.fromkeys(names, proxy.base_url), "no_proxy": "", "NO_PROXY": ""}
        with mock.patch.dict(os.environ, env):
            tally.times += 1 + len(SIDE_QUESTIONS)
            tally.check(await _send(server.base_url) == "ok", "not asked directly")
            await _side(server.base_url)
            tally.check(proxy.contacts == 0, f"the proxy saw {proxy.contacts} connections")
            tally.times += 1
            await _send(server.base_url, trust_env=True)
            tally.check(proxy.contacts == 1, "asked for, the proxy was not used")
    return tally


async def side_answers() -> Tally:
    """Side questions answered with every hostile body: an answer or None, bounded, no exception."""
    tally = Tally("side question answered with a bomb or garbage")
    kinds = (
        "gzip_bomb",
        "huge",
        "garbage",
        "short_body",
        "deep",
        "big_header",
        "reset",
        "echo_key",
    )
    for kind in kinds:
        async with ChaosServer(kind) as server, _session(KEY, False) as session:
            api = ServerApi(server.base_url, session, api_key=KEY)
            tally.times += 1
            answer = await asyncio.wait_for(api.get("/metrics", timeout_s=5), 10)
            size = len(answer[1]) if answer else 0
            tally.check(size <= 8 << 20, f"{kind}: {size} characters")
            tally.check(answer is None or KEY not in answer[1], f"{kind}: the key is kept")
            tally.check(await api.models() == [], f"{kind}: models out of nothing")
    return tally


def elsewhere() -> list[Tally]:
    """All of it."""
    return [asyncio.run(redirects()), asyncio.run(proxies()), asyncio.run(side_answers())]
