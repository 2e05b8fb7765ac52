"""A decode server's clock, simulated: what a client of it would have stored, as a whole run.

The run is planned, frozen and scored by the product's own code; only the servers are simulated.
Every arm is the same engine; `World.slowdown` stretches one arm's time, as a delaying proxy does.
Launches differ by themselves, time drifts over the run, steps jitter and sometimes stall.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evalharness.arms import launch_order, load_arms_file, with_digests
from evalharness.factorial.cells import build_requests, planned_cells, record_file, responses_file
from evalharness.factorial.planning import (
    Asked,
    build_plan,
    freeze,
    replays_of,
    speed_repeats_of,
)
from evalharness.manifest import Manifest, freeze_into, load_cases
from evalharness.manifest_build import build_manifest
from evalharness.noninferiority import Asked as Question
from evalharness.report import report_document
from evalharness.scoring import score_run
from evalharness.store.lines import encode_line
from evalharness.types import Case, CellKey, Request, Response, canonical_json
from tests.report.plant import cell_record, write_sums

ROOT = Path(__file__).parents[2]
MS = 1_000_000


@dataclasses.dataclass(frozen=True)
class World:
    """How the servers behave. Times in ms; `_sd` are relative standard deviations.

    slowdown: factor on all of the slowed arm's times; prefill_slowdown: on its prefills alone.
    """

    slowdown: float = 1.0
    prefill_slowdown: float = 1.0
    seed: int = 0
    step_ms: float = 12.0
    prefill_ms: float = 5.0
    launch_sd: float = 0.008
    step_sd: float = 0.04
    stall_share: float = 0.001
    drift: float = 0.15


@dataclasses.dataclass(frozen=True)
class Layout:
    """What is run. `change` may replace a cell's responses (faults)."""

    repeats: int = 6
    concurrency: tuple[int, ...] = (4,)
    waves: int = 3
    output_tokens: int = 16
    quality: bool = False
    order: str = "alternating"
    aa: bool = True
    change: Callable[[CellKey, list[Response]], list[Response]] = lambda key, found: found


def speed_of(run: Path) -> dict[str, Any]:
    """Return the speed section of a run's report."""
    section = report_document([run], Question())["speed"]
    assert isinstance(section, dict)
    return section


def plant_speed_run(run: Path, world: World, layout: Layout | None = None) -> Path:
    """Write RUN as the factorial would have left it, and return it."""
    layout = layout or Layout()
    run.mkdir(parents=True)
    file, _ = with_digests(load_arms_file(_arms(run, layout)))
    manifest = build_manifest(_recipe(run, layout))
    cases = load_cases(manifest)
    launches = launch_order(
        [arm.name for arm in file.arms],
        aa=file.aa,
        order=file.order,
        seed=world.seed,
        replays=replays_of(file),
        speed_repeats=speed_repeats_of(file),
    )
    asked = Asked(layout.concurrency, world.seed, {})
    freeze(run, build_plan(file, manifest, launches, asked))
    freeze_into(run, manifest, cases)
    rng = np.random.default_rng(world.seed)
    clock = _Clock(world, rng)
    for number, launch in enumerate(launches, start=1):
        clock.launch(number / len(launches), slowed=launch.arm == "proxy")
        _write_server(run, launch.arm, number, file.arm(launch.arm))
        for cell in planned_cells(manifest, launch, layout.concurrency):
            _write_cell(run, cell.key, number, _cell(clock, manifest, cases, cell.key, layout))
    assert not score_run(run).faults
    write_sums(run)
    return run


def _arms(run: Path, layout: Layout) -> Path:
    path = run / "arms.yaml"
    margins = "{gsm8k: 0.25}" if layout.quality else "{}"
    levels = [
        f"{name}: {{endpoint: {{base_url: 'http://127.0.0.1:{port}', served_name: m}}}}"
        for name, port in (("off", 1), ("on", 2))
    ]
    path.write_text(
        f"factors: {{proxy: {{{', '.join(levels)}}}}}\ncontrol: {{proxy: off}}\n"
        f"aa: {json.dumps(layout.aa)}\norder: {layout.order}\nplan: {{alpha: 0.025, "
        f"margins: {margins}, speed_repeats: {layout.repeats}, "
        f"gate_concurrency: {list(layout.concurrency)}}}\n"
    )
    return path


def _recipe(run: Path, layout: Layout) -> Path:
    recipe = json.loads((ROOT / "manifests/recipes/speed-small.json").read_text())
    entry = recipe["suites"]["speed"]
    entry["options"]["waves"] = layout.waves
    entry["sampling"]["max_tokens"] = layout.output_tokens
    if layout.quality:
        recipe["suites"]["gsm8k"] = {
            "source": "word_problems",
            "modes": ["chat"],
            "template": "gsm8k/1",
            "sampling": {"temperature": 0.0, "top_p": 1.0, "max_tokens": 64},
            "select": [{}],
        }
    path = run / "recipe.json"
    path.write_text(json.dumps(recipe))
    return path


class _Clock:
    """Durations of one launch's steps."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self._world, self._rng = world, rng
        self._scale = self._prefill = 1.0
        self.now_ns = 10**9

    def launch(self, progress: float, *, slowed: bool) -> None:
        """Begin a launch at `progress` (0 to 1) of the run."""
        world = self._world
        own = float(np.exp(self._rng.normal(0, world.launch_sd)))
        self._scale = own * (1 + world.drift * progress) * (world.slowdown if slowed else 1.0)
        self._prefill = world.prefill_slowdown if slowed else 1.0
        self.now_ns += 10**10

    def step(self, prefills: int) -> int:
        """Return the duration of one engine step with that many prefills, in ns."""
        world, rng = self._world, self._rng
        ms = world.step_ms * float(np.exp(rng.normal(0, world.step_sd)))
        if rng.random() < world.stall_share:
            ms += 3 * world.step_ms
        return int((ms + prefills * world.prefill_ms * self._prefill) * self._scale * MS)

    def jitter_ns(self) -> int:
        """Return how late an arrival is seen."""
        return int(self._rng.exponential(0.03) * MS)


def _cell(
    clock: _Clock, manifest: Manifest, cases: Any, key: CellKey, layout: Layout
) -> list[Response]:
    entry = manifest.entries[key.suite]
    requests = build_requests(entry, cases[key.suite], key, model="m", seed=3)
    if entry.suite == "speed":
        return layout.change(key, simulate(clock, requests, concurrency=key.concurrency))
    return [_right(case, one) for case, one in zip(cases[key.suite], requests, strict=True)]


def simulate(clock: _Clock, requests: Sequence[Request], *, concurrency: int) -> list[Response]:
    """Return the responses of a closed loop against a continuously batching engine.

    A step admits every waiting prompt, and gives each running stream one token.
    """
    queue = list(requests)
    waiting: list[tuple[int, Request]] = []
    running: list[_Stream] = []
    done: list[Response] = []
    engine_ns = clock.now_ns
    for _ in range(min(concurrency, len(queue))):
        waiting.append((engine_ns, queue.pop(0)))
    while waiting or running:
        if not running:
            engine_ns = max(engine_ns, min(sent for sent, _ in waiting))
        admitted = [one for one in waiting if one[0] <= engine_ns]
        waiting = [one for one in waiting if one[0] > engine_ns]
        running += [_Stream(request, sent) for sent, request in admitted]
        engine_ns += clock.step(len(admitted))
        for stream in running:
            stream.at.append(max([engine_ns + clock.jitter_ns(), *stream.at[-1:]]))
        for stream in [one for one in running if one.whole]:
            running.remove(stream)
            done.append(stream.response(concurrency))
            if queue:
                waiting.append((stream.at[-1] + 200_000, queue.pop(0)))
    clock.now_ns = engine_ns + 10**9
    return done


class _Stream:
    """One request as the engine and the client see it."""

    def __init__(self, request: Request, sent_ns: int) -> None:
        self.request, self.sent_ns, self.at = request, sent_ns, list[int]()
        self.forced = int(json.loads(request.body_json)["max_tokens"])

    @property
    def whole(self) -> bool:
        """True when the forced length is reached."""
        return len(self.at) == self.forced

    def response(self, in_flight: int) -> Response:
        """Return what the client stores."""
        body = stream_body(self.forced)
        end_ns = self.at[-1] + 50_000
        return Response(
            case_id=self.request.case_id,
            replicate=self.request.replicate,
            request_digest=self.request.digest,
            endpoint=self.request.endpoint,
            request_body=self.request.body_json,
            status="ok",
            http_code=200,
            body=body,
            body_encoding="utf-8",
            error=None,
            sent_ns=self.sent_ns,
            first_byte_ns=self.at[0],
            done_ns=end_ns,
            in_flight=in_flight,
            chunk_ns=(*self.at, end_ns - 20_000, end_ns - 10_000),
            usage=canonical_json({"completion_tokens": self.forced, "prompt_tokens": 64}),
            finish_reason="length",
        )


def stream_body(tokens: int, *, usage: bool = True) -> str:
    """Return a completion's event stream: one token an event, then the usage, then the end."""
    events = []
    for i in range(tokens):
        choice = {"index": 0, "text": f" w{i}", "finish_reason": None}
        if i == tokens - 1:
            choice["finish_reason"] = "length"
        counted = {"usage": {"completion_tokens": i + 1}} if usage else {}
        events.append({"model": "m", "choices": [choice], **counted})
    if usage:
        events.append({"model": "m", "choices": [], "usage": {"completion_tokens": tokens}})
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


def _right(case: Case, request: Request) -> Response:
    gold = json.loads(case.expected)["gold"]
    choice = {"message": {"content": f"#### {gold}"}, "finish_reason": "stop"}
    return Response(
        case_id=request.case_id, replicate=request.replicate, request_digest=request.digest,
        endpoint=request.endpoint, request_body=request.body_json, status="ok", http_code=200,
        body=json.dumps({"model": "m", "choices": [choice]}), body_encoding="utf-8", error=None,
        sent_ns=1, first_byte_ns=2, done_ns=3, in_flight=1, finish_reason="stop",
    )  # fmt: skip


def _write_cell(run: Path, key: CellKey, launch: int, found: Sequence[Response]) -> None:
    path = responses_file(run, key, f"{launch:03d}")
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = b"".join(encode_line(one) for one in found)
    path.write_bytes(raw)
    record = cell_record(key, launch, rows=len(found), expected=len(found), raw=raw)
    record_file(path).write_text(json.dumps(record))


def _write_server(run: Path, name: str, launch: int, arm: Any) -> None:
    example = json.loads((ROOT / "evalharness/formats/examples/server.json").read_text())
    levels = {
        factor: {"level": level, "in_effect": None, "evidence": "an endpoint"}
        for factor, level in arm.levels
    }
    facts = {
        **example, "arm": name, "launch": launch, "digest": arm.digest, "managed": False,
        "levels": levels, "argv": [], "env": {}, "route_hits": [],
    }  # fmt: skip
    folder = run / "arms" / name / f"{launch:03d}"
    folder.mkdir(parents=True)
    (folder / "server.json").write_text(json.dumps(facts))
