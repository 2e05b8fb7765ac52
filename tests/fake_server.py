"""A deterministic OpenAI-compatible server on the loopback, with hooks for faults.

It answers like vLLM where the harness looks: key, models, metrics, server_info, prefix cache,
chat and completions, streamed or not. Answers depend on the request's body alone, and on the
server's `--dtype` for one case in eight, so that two dtypes differ a little.

As a library: `async with FakeServer() as server: server.base_url`.
As a process: `python tests/fake_server.py --port 8000` (vLLM's arguments are accepted), also in
place of vLLM through `fake_python(folder)`: an executable for an arms file's `server.python`.

Faults: `faults={3: "status:500"}` by number of completion request from 1, or `{"every": ...}`;
a process reads them from $FAKE_FAULTS as JSON. Kinds: status:N, reset, hang, trickle, huge,
invalid_utf8, broken_sse, no_done, wrong_type, gzip, wrong_shape, other_model, redirect, die,
freeze, echo_key, empty, engine_dead.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

SERVED = "fake"
HUGE_BYTES = 96 << 20


def digest_of(body: Mapping[str, Any]) -> int:
    """Return a number that depends on the request's content alone."""
    text = json.dumps(body, sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


class FakeServer:
    """The server. `asked` counts completion requests by the SHA-256 of their body."""

    def __init__(
        self,
        *,
        served: str = SERVED,
        key: str | None = None,
        faults: Mapping[Any, str] | None = None,
        delay_s: float = 0.0,
        settings: Mapping[str, Any] | None = None,
        reset: str = "ok",
        asked_log: Path | None = None,
    ) -> None:
        self.served = served
        self.key = key
        self.faults = dict(faults or {})
        self.delay_s = delay_s
        self.settings = dict(settings or {})
        self.reset = reset
        self.asked: Counter[str] = Counter()
        self.asked_log = asked_log
        self.running = 0
        self.most_running = 0
        self.engine_dead = False
        self.resets = 0
        self.base_url = ""
        self._count = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> FakeServer:
        await self.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def start(self, host: str, port: int) -> None:
        """Listen; `base_url` is set afterwards."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/server_info", self._server_info)
        app.router.add_post("/reset_prefix_cache", self._reset)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._completion)
        app.router.add_post("/v1/completions", self._completion)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        address = self._runner.addresses[0]
        self.base_url = f"http://{address[0]}:{address[1]}"

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="", status=503 if self.engine_dead else 200)

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": "0.0.fake"})

    async def _metrics(self, _request: web.Request) -> web.Response:
        labels = f'{{engine="0",model_name="{self.served}"}}'
        return web.Response(text=f"vllm:num_requests_running{labels} {float(self.running)}\n")

    async def _server_info(self, _request: web.Request) -> web.Response:
        env = {name: value for name, value in os.environ.items() if name.startswith("VLLM_")}
        env.pop("VLLM_API_KEY", None)
        return web.json_response({"vllm_config": {"fake_config": self.settings}, "vllm_env": env})

    async def _reset(self, _request: web.Request) -> web.Response:
        if self.reset == "absent":
            return web.Response(status=404)
        self.resets += 1
        return web.json_response({"success": self.reset == "ok" and self.running == 0})

    def _refused(self, request: web.Request) -> web.Response | None:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return None

    async def _models(self, request: web.Request) -> web.Response:
        refused = self._refused(request)
        root = self.settings.get("model", self.served)
        return refused or web.json_response(
            {"data": [{"id": self.served, "root": root, "max_model_len": 4096}]}
        )

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        refused = self._refused(request)
        if refused is not None:
            return refused
        raw = await request.read()
        body = json.loads(raw)
        if body.get("max_tokens") == 1 and body.get("prompt") == "1":
            return web.json_response(self._reply(request.path, body))  # the harness's first look
        self._note(raw)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            self._count += 1
            fault = self.faults.get(self._count) or self.faults.get("every")
            if fault is not None:
                return await self._fault(fault, request, body)
            reply = self._reply(request.path, body)
            if body.get("stream"):
                return await self._stream(request, reply)
            return web.json_response(reply)
        finally:
            self.running -= 1

    def _note(self, raw: bytes) -> None:
        digest = hashlib.sha256(raw).hexdigest()
        self.asked[digest] += 1
        if self.asked_log is not None:
            with self.asked_log.open("a", encoding="ascii") as stream:
                stream.write(f"{os.environ.get('FAKE_ARM', '')} {digest}\n")

    def _reply(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        number = digest_of(body)
        if str(self.settings.get("dtype")) == "bfloat16" and number % 8 == 0:
            number += 1
        prompt = json.dumps(body.get("messages", body.get("prompt", "")))
        text = f"The answer is {number % 97}.\n#### {number % 97}"
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": 12}
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        if path.endswith("chat/completions"):
            choice["message"] = self._message(body, text, number)
        else:
            choice["text"] = text
        if body.get("return_token_ids"):
            choice["token_ids"] = [number % 1000 + step for step in range(12)]
            choice["prompt_token_ids"] = list(body["prompt"])
        return {
            "id": f"cmpl-{number:x}",
            "model": self.served,
            "system_fingerprint": "fake-1",
            "choices": [choice],
            "usage": usage,
        }

    def _message(self, body: Mapping[str, Any], text: str, number: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        tools = body.get("tools")
        if tools and number % 3:
            function = tools[0]["function"]
            fields = function.get("parameters", {}).get("properties", {})
            arguments = json.dumps(dict.fromkeys(fields, number % 10))
            call = {"name": function["name"], "arguments": arguments}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{number % 1000}", "type": "function", "function": call}],
            }
        return message

    async def _stream(self, request: web.Request, reply: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for event in self._events(reply):
            await response.write(f"data: {event}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _events(self, reply: dict[str, Any]) -> AsyncIterator[str]:
        choice = reply["choices"][0]
        text = choice.get("text") or (choice.get("message") or {}).get("content") or ""
        parts = text.split(" ")
        chat = "message" in choice
        for index, part in enumerate(parts):
            piece = part if index == 0 else f" {part}"
            body = {"delta": {"content": piece}} if chat else {"text": piece}
            last = index == len(parts) - 1
            event = {"index": 0, **body, "finish_reason": "stop" if last else None}
            if "token_ids" in choice:
                event["token_ids"] = choice["token_ids"] if last else []
            yield json.dumps({"id": reply["id"], "model": reply["model"], "choices": [event]})
            await asyncio.sleep(0)
        yield json.dumps(
            {"id": reply["id"], "model": reply["model"], "choices": [], "usage": reply["usage"]}
        )

    async def _fault(
        self, fault: str, request: web.Request, body: Mapping[str, Any]
    ) -> web.StreamResponse:
        kind, _, value = fault.partition(":")
        reply = self._reply(request.path, body)
        transport = request.transport
        assert transport is not None
        if kind == "status":
            return web.json_response({"error": {"message": "planted"}}, status=int(value))
        if kind == "reset":
            transport.abort()
            return web.Response()
        if kind == "hang":
            await asyncio.sleep(3600)
        if kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "engine_dead":
            # vLLM's front end when its engine core is gone: alive, healthy no more, 500 to all.
            self.engine_dead, self.faults["every"] = True, "status:500"
            return web.json_response({"error": {"message": "EngineDeadError"}}, status=500)
        if kind == "redirect":
            raise web.HTTPTemporaryRedirect("http://127.0.0.2:9/elsewhere")
        if kind in ("trickle", "huge", "broken_sse", "no_done"):
            return await self._long_fault(kind, request, reply)
        bodies: dict[str, tuple[bytes, str]] = {
            "invalid_utf8": (b'{"choices": "\xff\xfe"}', "application/json"),
            "wrong_type": (b"<html><script>alert(1)</script></html>", "text/html"),
            "wrong_shape": (b'{"choices": {"message": 3}}', "application/json"),
            "other_model": (json.dumps({**reply, "model": "other"}).encode(), "application/json"),
            "empty": (b"", "application/json"),
            "echo_key": (f'{{"error": "key {self.key} refused"}}'.encode(), "application/json"),
        }
        if kind == "gzip":
            data = gzip.compress(b"0" * (256 << 20), compresslevel=9)
            headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
            return web.Response(body=data, headers=headers)
        raw, content_type = bodies[kind]
        return web.Response(body=raw, content_type=content_type)

    async def _long_fault(
        self, kind: str, request: web.Request, reply: dict[str, Any]
    ) -> web.StreamResponse:
        sse = kind in ("broken_sse", "no_done")
        content_type = "text/event-stream" if sse else "application/json"
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        if kind == "trickle":
            for byte in json.dumps(reply).encode():
                await response.write(bytes([byte]))
                await asyncio.sleep(1.0)
        elif kind == "huge":
            for _ in range(HUGE_BYTES >> 20):
                await response.write(b" " * (1 << 20))
        elif kind == "broken_sse":
            await response.write(b'data: {"choices": [{"te\n\ndata: [DONE]\n\n')
        else:
            await response.write(f"data: {json.dumps(reply)}\n\n".encode())
        return response


def fake_python(folder: Path) -> Path:
    """Write an executable that serves this file where vLLM is asked for, and is Python else."""
    path = folder / "fake-python"
    here = Path(__file__).resolve()
    path.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = "-m" ]; then shift 2; exec "{sys.executable}" "{here}" "$@"; fi\n'
        f'exec "{sys.executable}" "$@"\n',
        encoding="ascii",
    )
    path.chmod(0o755)
    return path


def _settings(rest: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {"dtype": "float32", "enable_prefix_caching": True}
    for index, arg in enumerate(rest):
        if not arg.startswith("--"):
            continue
        name = arg[2:].replace("-", "_")
        follows = rest[index + 1] if index + 1 < len(rest) else "--"
        if not follows.startswith("--"):
            settings[name] = follows
        elif name.startswith("no_"):
            settings[name[3:]] = False
        else:
            settings[name] = True
    return settings


async def _serve(args: argparse.Namespace, rest: list[str]) -> None:
    settings = {**_settings(rest), "model": args.model}
    if settings.get("dtype") == "banana":
        sys.exit("ValueError: Unknown dtype: banana")
    if "fake_ignores_dtype" in settings:
        settings["dtype"] = "float32"
    log = os.environ.get("FAKE_ASKED_LOG")
    server = FakeServer(
        served=args.served_model_name,
        key=os.environ.get("VLLM_API_KEY"),
        faults={
            int(key) if key.isdigit() else key: fault
            for key, fault in json.loads(os.environ.get("FAKE_FAULTS", "{}")).items()
        },
        delay_s=float(os.environ.get("FAKE_DELAY_S", "0")),
        settings=settings,
        reset=os.environ.get("FAKE_RESET", "ok"),
        asked_log=Path(log) if log else None,
    )
    await asyncio.sleep(float(os.environ.get("FAKE_START_S", "0")))
    await server.start(args.host, args.port)
    sys.stdout.write(f"non-default args: {settings}\nlistening on {server.base_url}\n")
    sys.stdout.flush()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    if os.environ.get("FAKE_CHILD"):
        # A worker process that would outlive its parent, as an engine's may.
        await asyncio.create_subprocess_exec("sleep", "3600", start_new_session=True)
    await stopped.wait()
    if os.environ.get("FAKE_STUBBORN"):
        await asyncio.sleep(3600)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default=SERVED)
    parser.add_argument("--served-model-name", default=SERVED)
    args, rest = parser.parse_known_args()
    asyncio.run(_serve(args, rest))


if __name__ == "__main__":
    main()
