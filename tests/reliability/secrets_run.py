"""A key is planted, a hostile server echoes it wherever it can, and the whole run is searched."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.e2e.fake_run import ROOT, FakeFactorial
from tests.fake_server import FakeServer
from tests.reliability.tally import Tally

KEY = "sk-planted-7f3e9a1c5d2b8f6e4a0c"
HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202e<script>alert(1)</script>](javascript:alert(1))"


class Parrot(FakeServer):
    """Accepts the key, and says it in every answer, beside texts that attack their reader."""

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": f"0.0 {KEY} {HOSTILE}"})

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=f'key{{value="{KEY}"}} 1\nvllm:num_requests_running {KEY}\n')

    async def _server_info(self, _request: web.Request) -> web.Response:
        config = {"args": ["--api-key", KEY], KEY: KEY, "api_key": KEY, "text": HOSTILE}
        return web.json_response({"vllm_config": config, "vllm_env": {"HEADER": f"Bearer {KEY}"}})

    async def _models(self, request: web.Request) -> web.Response:
        entry = {"id": self.served, "root": KEY, "owned_by": f"{KEY}{HOSTILE}"}
        return self._refused(request) or web.json_response({"data": [entry]})

    def _reply(self, path: str, body: Any) -> dict[str, Any]:
        reply = super()._reply(path, body)
        reply["system_fingerprint"] = KEY
        reply["usage"][KEY] = 1
        reply["choices"][0]["finish_reason"] = f"{KEY}{HOSTILE}"
        message = reply["choices"][0].get("message")
        if message is not None:
            message["content"] = f"{message['content']} {KEY} {HOSTILE}"
        return reply

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        reply = await super()._completion(request)
        if self._count % 4 == 0:
            return web.Response(body=b'{"x": "\xff ' + KEY.encode() + b'"}')
        if self._count % 4 == 1:
            return web.Response(text=f"no: {KEY}", status=500, reason=f"key {KEY}")
        return reply


def forms_of(key: str) -> list[bytes]:
    """Return the spellings of the key that are searched for."""
    raw = key.encode()
    coded = [base64.b64encode(b"x" * pad + raw)[4 * (pad > 0) : -4] for pad in range(3)]
    return [raw, raw.hex().encode(), *coded]


def finding_key(run: Path, key: str) -> list[str]:
    """Return the files of the run, names included, in which the key stands in any spelling."""
    found = []
    for path in run.rglob("*"):
        text = path.name.encode() + (path.read_bytes() if path.is_file() else b"")
        found += [str(path) for form in forms_of(key) if form in text]
    return found


def write_arms(work: FakeFactorial, url: str) -> None:
    """Point both arms at one endpoint under two names."""
    other = url.replace("127.0.0.1", "localhost")
    work.arms.write_text(
        f"endpoint: {{base_url: '{url}', api_key_env: PLANTED_KEY}}\n"
        "factors:\n  build:\n    old: {}\n    new: {endpoint: {base_url: "
        f"'{other}', api_key_env: PLANTED_KEY}}}}\n"
        "control: {build: old}\naa: false\n"
        "plan: {alpha: 0.025, margins: {gsm8k: 0.5}, gate_concurrency: [2]}\n"
    )


async def command(*argv: str, **env: str) -> tuple[int, str]:
    """Run a command beside the server; returns exit code and all output."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode("utf-8", "replace")


async def planted_key(folder: Path) -> Tally:
    """Run a factorial against the parrot and search everything it left."""
    tally = Tally("API key planted, echoed by a hostile server", times=1)
    work = FakeFactorial(folder, concurrency="2", aa=False, cases=3)
    async with Parrot(key=KEY) as server:
        write_arms(work, server.base_url)
        code, output = await command(*work.command(), PLANTED_KEY=KEY)
        tally.check(code == 0, f"exit {code}: {output[-600:]}")
        tally.check(KEY not in output, "the key is in the output")
        wrong = await command(*work.command("--seed", "5"), PLANTED_KEY=KEY)
        tally.check(wrong[0] == 2 and KEY not in wrong[1], "an error shows the key")
    tally.check(not finding_key(work.run, KEY), f"the key is in {finding_key(work.run, KEY)}")
    tally.check("\x1b" not in output and "\u202e" not in output, "the terminal can be steered")
    page = (work.run / "report" / "index.html").read_text()
    tally.check("<script>alert" not in page, "the page holds a script of the model's")
    rows = [path.read_text() for path in work.run.glob("responses/*/*/*.jsonl")]
    count = sum(text.count("\n") for text in rows)
    tally.check(count == 2 * 5, f"{count} rows", loses=True)
    tally.check(all(json.loads(line) for text in rows for line in text.splitlines()), "no JSON")
    return tally
