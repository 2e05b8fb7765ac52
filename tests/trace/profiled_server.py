"""A loopback server that streams tokens and has vLLM's profile endpoints, with planted faults.

It notes what it was doing when the profiler started and stopped, so that a test can tell a
profile asked for too early from one that waited. Its trace holds one annotated step for each
token of stream 0 between start and stop, and one with prefill where a request began in between.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.trace.build import kernel, step, write


class ProfiledServer:
    """faults: no_profile, no_stream, error_event, foreign, no_trace, no_counters. limit: tokens
    at which every stream ends. slow_first_s: delay of the last stream's first token."""

    def __init__(
        self,
        traces: Path,
        *,
        faults: frozenset[str] = frozenset(),
        limit: int | None = None,
        slow_first_s: float = 0.0,
    ) -> None:
        self.traces = traces
        self.faults = faults
        self.limit = limit
        self.slow_first_s = slow_first_s
        self.made: list[int] = []
        self.running = 0
        self.prompt_tokens = 0
        self.at_start: list[int] | None = None
        self.at_stop: list[int] | None = None
        self.bodies: list[dict[str, Any]] = []
        self.base_url = ""

    async def __aenter__(self) -> ProfiledServer:
        app = web.Application()
        app.router.add_post("/v1/completions", self._completion)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        if "no_profile" not in self.faults:
            app.router.add_post("/start_profile", self._start)
            app.router.add_post("/stop_profile", self._stop)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        address = self._runner.addresses[0]
        self.base_url = f"http://{address[0]}:{address[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "demo", "root": "/models/demo"}]})

    async def _metrics(self, _request: web.Request) -> web.Response:
        if "no_counters" in self.faults:
            return web.Response(status=404)
        return web.Response(
            text=f'vllm:num_requests_running{{engine="0"}} {float(self.running)}\n'
            f'vllm:prompt_tokens_total{{engine="0"}} {float(self.prompt_tokens)}\n'
        )

    async def _start(self, _request: web.Request) -> web.Response:
        self.at_start = list(self.made)
        self._prompts_at_start = self.prompt_tokens
        return web.Response()

    async def _stop(self, _request: web.Request) -> web.Response:
        if "foreign" in self.faults:
            self.prompt_tokens += 5  # another client's request, prefilled during the profile
        self.at_stop = list(self.made)
        assert self.at_start is not None
        decode = f"execute_context_0(0)_generation_{self.running}({self.running})"
        names = [decode] * (self.at_stop[0] - self.at_start[0])
        if self.prompt_tokens != self._prompts_at_start:
            names.append(f"execute_context_1(5)_generation_{self.running}({self.running})")
        if "no_annotations" in self.faults:
            names = []
        events = [step(name, 10.0 * i) for i, name in enumerate(names)]
        events += [kernel("gemm", 10.0 * i, 4.0) for i in range(max(1, len(names)))]
        if "no_trace" not in self.faults:
            write(self.traces / "rank0.1.pt.trace.json.gz", events)
        return web.Response()

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body.get("max_tokens") == 1:  # the harness's first look
            choice = {"index": 0, "text": "1", "finish_reason": "length"}
            return web.json_response({"model": "demo", "choices": [choice]})
        self.bodies.append(body)
        if "no_stream" in self.faults:
            return web.json_response({"choices": [{"text": "whole"}]})
        number = len(self.made)
        self.made.append(0)
        self.running += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            await asyncio.sleep(self.slow_first_s if number else 0)
            self.prompt_tokens += 7
            for made in range(self.limit or body["max_tokens"]):
                await self._token(response, number, made)
            await response.write(b"data: [DONE]\n\n")
        except ConnectionError:
            pass
        finally:
            self.running -= 1
        return response

    async def _token(self, response: web.StreamResponse, number: int, made: int) -> None:
        event: dict[str, Any] = {
            "choices": [{"index": 0, "text": "a", "token_ids": [made]}],
            "usage": {"prompt_tokens": 7, "completion_tokens": made + 1},
        }
        if "error_event" in self.faults and made == 3:
            event = {"error": {"message": "planted"}}
        raw = f"data: {json.dumps(event)}\n\n".encode()
        # Cut in the middle: an event is no chunk.
        await response.write(raw[:9])
        await response.write(raw[9:])
        self.made[number] += 1
        await asyncio.sleep(0.004)
