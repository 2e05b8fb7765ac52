"""Record a small torch-profiler trace of decode-like steps: GEMMs, attention, our kernels, a graph.

    python3 -m tools.record_cuda_trace --out DIR [--name h200-decode] [--limit-s 38] [--device cpu]

Needs torch and this repository, nothing else. Writes DIR/<name>.json.gz, a chrome trace as vLLM's
profiler writes it (each step annotated in vLLM's words), and DIR/<name>.facts.json: the host, what
ran, and the profiler's own totals by kernel, which a reader of the trace must reproduce.

The work is done in a child process, which writes a trace with the fewest operations first and
replaces it by the whole one: a trace comes back within the limit even if the rest does not.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from tools.toy_decode import ANNOTATION, Decode, Runner

ROOT = Path(__file__).resolve().parents[1]
LIMIT_BYTES = 300_000
# Operation -> (case of its bench, candidate): inputs of one set, as the bench makes them.
OURS: dict[str, tuple[str, str]] = {
    "gdn_split": ("M16 fp16", "projection, kernel, qkv a view"),
    "qsa_expand": ("M16 8K", "kernel"),
    "qsa_page4": ("M16 8K", "kernel"),
    "moe_grouped": ("M16 nvfp4 float16 uniform", "plan, fused reduce"),
    "hyper_connection": ("whole M16 fp16", "clustered"),
}
FEWEST = ("gdn_split",)
BUILD_S = 14.0


def main(argv: Sequence[str] | None = None) -> int:
    """Record in a child process, with fewer operations if the first one does not come back."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="h200-decode")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=4, help="eager steps, and replays beside them")
    parser.add_argument("--limit-s", type=float, default=38.0)
    parser.add_argument("--operations", default=",".join(OURS))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    wanted = tuple(filter(None, args.operations.split(",")))
    unknown = set(wanted) - set(OURS)
    if unknown:
        parser.error(f"--operations: no {sorted(unknown)}; there are {', '.join(OURS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    base = args.out / args.name
    if args.child:
        return record(base, device=args.device, steps=args.steps, wanted=wanted)
    trace_file(base).unlink(missing_ok=True)
    end_s = time.monotonic() + args.limit_s
    for operations, share in ((wanted, 0.75), ((), 1.0)):
        left_s = (end_s - time.monotonic()) * share
        if left_s > 1:
            _child(args, operations, left_s)
        if trace_file(base).is_file():
            return _check(base)
    print("no trace was recorded", file=sys.stderr)
    return 1


def _child(args: argparse.Namespace, operations: Sequence[str], limit_s: float) -> None:
    command = [sys.executable, "-m", "tools.record_cuda_trace", "--child"]
    command += ["--out", str(args.out.resolve()), "--name", args.name, "--device", args.device]
    command += ["--steps", str(args.steps), "--operations", ",".join(operations)]
    try:
        done = subprocess.run(command, cwd=ROOT, timeout=limit_s, check=False)
        print(f"ended with {done.returncode}", flush=True)
    except subprocess.TimeoutExpired:
        print(f"stopped after {limit_s:.0f} s; what was written stays", flush=True)


def _check(base: Path) -> int:
    size = trace_file(base).stat().st_size
    print(f"{trace_file(base)}: {size} bytes (at most {LIMIT_BYTES})", flush=True)
    return 0 if size <= LIMIT_BYTES else 1


def trace_file(base: Path) -> Path:
    """Return the trace's path."""
    return base.with_name(base.name + ".json.gz")


def facts_file(base: Path) -> Path:
    """Return the path of what was recorded, and on what."""
    return base.with_name(base.name + ".facts.json")


def record(base: Path, *, device: str, steps: int, wanted: Sequence[str]) -> int:
    """Record with the fewest operations, then with all; ends the process, compilers and all."""
    import torch

    place = torch.device(device, 0) if device == "cuda" else torch.device("cpu")
    builds = Builds(place, wanted)
    fewest = [name for name in wanted if name in FEWEST]
    for names in [fewest] if len(fewest) == len(wanted) else [fewest, list(wanted)]:
        runners, said = our_runners(place, names, builds)
        _record(base, Decode(place, list(runners.values())), said, steps=steps)
    sys.stdout.flush()
    os._exit(0)


def _record(base: Path, work: Decode, operations: Mapping[str, str], *, steps: int) -> None:
    import torch

    place = work.x.device
    work.step()
    replay = _captured(work) if place.type == "cuda" else None
    activities = [torch.profiler.ProfilerActivity.CPU]
    if place.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities):  # its first start loads CUPTI
            work.step()
            torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profiler:
        _steps(work, replay, steps)
    _write(base, profiler, _facts(place, operations, steps, graph=replay is not None))


class Builds:
    """The card's binaries, compiled side by side; one that is late or fails is left out."""

    def __init__(self, place: Any, wanted: Sequence[str]) -> None:
        self._end_s = time.monotonic() + BUILD_S
        self._jobs: dict[str, Future[Any]] = {}
        if place.type != "cuda" or not wanted:
            return
        from kernels_sm70.build import build
        from kernels_sm70.runtime import architecture

        arch = architecture(place)
        pool = ThreadPoolExecutor(max_workers=len(wanted))
        self._jobs = {name: pool.submit(build, name, arch) for name in wanted}

    def wait_for(self, name: str) -> None:
        """Return once the binary is there. Raises what the build raised, or TimeoutError."""
        if name in self._jobs:
            self._jobs[name].result(timeout=max(0.1, self._end_s - time.monotonic()))


def our_runners(
    place: Any, wanted: Sequence[str], builds: Builds
) -> tuple[dict[str, Runner], dict[str, str]]:
    """Return what runs here, by operation, and for every one wanted `ran` or why it did not."""
    said: dict[str, str] = {}
    runners: dict[str, Runner] = {}
    for name in wanted:
        try:
            builds.wait_for(name)
            runners[name] = _runner(place, name)
            said[name] = "ran"
        except Exception as error:  # noqa: BLE001 - whatever stops one is its reason; others run
            said[name] = f"{type(error).__name__}: {error}"[:200]
        print(f"{name}: {said[name]}", flush=True)
    return runners, said


def _runner(place: Any, name: str) -> Runner:
    """Return the bench's own candidate on one set of inputs, after it has run once."""
    import torch

    label, candidate = OURS[name]
    cases = {case.label: case for case in import_module(f"kernels_sm70.{name}.bench").CASES}
    found = cases[label].prepare(place, 1)[candidate]
    if not callable(found):
        raise RuntimeError(f"absent: {found.reason}")
    run: Runner = found
    run(0)
    if place.type == "cuda":
        torch.cuda.synchronize()
    return run


def _captured(work: Decode) -> Any:
    from kernels_sm70.gpu_checks import capture

    try:
        graph = capture(work.compute)
    except Exception as error:  # noqa: BLE001 - a trace without a graph is still a trace
        print(f"no graph: {error}", flush=True)
        return None
    graph.replay()
    return graph


def _steps(work: Decode, replay: Any, steps: int) -> None:
    """Run `steps` eager steps and as many replayed ones, annotated as vLLM annotates them."""
    import torch

    for number in range(steps * (2 if replay is not None else 1)):
        with torch.profiler.record_function(ANNOTATION):
            if replay is not None and number >= steps:
                replay.replay()
            else:
                work.compute()
        work.sample()
    if replay is not None or work.x.is_cuda:
        torch.cuda.synchronize()


def _facts(place: Any, operations: Mapping[str, str], steps: int, *, graph: bool) -> dict[str, Any]:
    import torch

    on_card = place.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(place) if on_card else "CPU",
        "torch": torch.__version__,
        "cuda": torch.version.cuda if on_card else None,
        "operations": dict(operations),
        "annotation": ANNOTATION,
        "eager_steps": steps,
        "graph_replays": steps if graph else 0,
    }


def _write(base: Path, profiler: Any, facts: dict[str, Any]) -> None:
    """Write the trace (gzip without a time stamp) and the facts, each whole or not at all."""
    plain = base.with_name(base.name + ".json")
    profiler.export_chrome_trace(str(plain))
    facts["totals"] = _totals(profiler, on_card=facts["cuda"] is not None)
    # The profiler writes its own output's path into the trace; the host's folders are nobody's.
    text = plain.read_text(encoding="utf-8").replace(str(plain), plain.name)
    packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
    plain.unlink()
    text = json.dumps(facts, indent=1) + "\n"
    for path, raw in ((facts_file(base), text.encode()), (trace_file(base), packed)):
        partial = path.with_name(path.name + ".partial")
        partial.write_bytes(raw)
        partial.replace(path)
    print(json.dumps({key: value for key, value in facts.items() if key != "totals"}), flush=True)


def _totals(profiler: Any, *, on_card: bool) -> list[dict[str, Any]]:
    """Return the profiler's own sums: {name, calls, us}; kernels on a card, self time on a CPU."""
    from torch.autograd import DeviceType

    wanted = DeviceType.CUDA if on_card else DeviceType.CPU
    sums: dict[str, list[float]] = {}
    for event in profiler.events():
        if event.device_type != wanted or getattr(event, "is_user_annotation", False):
            continue
        if event.name.startswith(("execute_", "ProfilerStep", "cuda", "cu")) and not on_card:
            continue
        us = event.time_range.elapsed_us() if on_card else event.self_cpu_time_total
        found = sums.setdefault(event.name, [0, 0.0])
        found[0] += 1
        found[1] += us
    return [
        {"name": name, "calls": int(calls), "us": round(us, 3)}
        for name, (calls, us) in sorted(sums.items(), key=lambda item: -item[1][1])
    ]


if __name__ == "__main__":
    sys.exit(main())
