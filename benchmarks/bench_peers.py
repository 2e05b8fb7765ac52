#!/usr/bin/env python3
"""Whole processes side by side: a bare aiohttp loop, we, lm-evaluation-harness, inspect_ai.

    python -m benchmarks.bench_peers [--requests 1319] [--rounds 5] [--slow-rounds 2] [--json F]

Each sends the same GSM8K-size questions at C16 to one loopback server that answers at once.
The server's clock gives the request phase (first request to last reply) of all of them alike;
the process gives wall clock, CPU and memory. Rounds alternate; figures are medians. This harness
runs `evalharness factorial` whole: plan, requests, every response synced to disk and read back,
scores, report. The others run as their documentation has it. Timings are no test.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.loopback import loopback_server, rows, stats, write_rows
from benchmarks.peer_environments import INSPECT, LM_EVAL, ensure, environment

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 16
LIMIT_S = 300.0
KEPT = {
    "bare aiohttp loop": "nothing",
    "evalharness": "request, body, times, usage; synced before it counts",
    "lm-evaluation-harness": "nothing asked for",
    "inspect_ai": "its log (.eval)",
}
LM_EVAL_TASK = """task: bench_problems
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{final}}}}"
generation_kwargs: {{max_gen_toks: 256, temperature: 0.0, until: ["QQQQ"]}}
metric_list: [{{metric: exact_match}}]
"""
INSPECT_TASK = """from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.scorer import match
from inspect_ai.solver import generate


@task
def bench_problems() -> Task:
    fields = FieldSpec(input="question", target="final", id="id")
    return Task(json_dataset({rows!r}, fields), solver=generate(), scorer=match(numeric=True))
"""
ARMS = """endpoint: {{base_url: "{url}", served_name: bench}}
factors:
  place: {{here: {{}}, there: {{endpoint: {{base_url: "http://127.0.0.1:9", served_name: bench}}}}}}
control: {{place: here}}
arms: [{{place: here}}]
aa: false
"""


@dataclass(frozen=True, slots=True)
class Round:
    """One whole process. Seconds; MiB of its largest process; phase_s by the server's clock."""

    wall_s: float
    phase_s: float
    cpu_s: float
    rss_mib: float


@dataclass(frozen=True, slots=True)
class Tool:
    """How one of them is started: `prepare(url, folder)` returns command and environment."""

    name: str
    prepare: Callable[[str, Path], tuple[list[str], dict[str, str]]]
    exits: frozenset[int] = frozenset({0})


def bare(url: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The loop anyone would write, in a process of its own."""
    return [sys.executable, "-m", "benchmarks.bare_loop", url, str(folder / "rows.jsonl")], {}


def ours(url: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """One arm of `evalharness factorial` against a server that somebody else runs."""
    source = {"kind": "jsonl", "id": "bench", "revision": "1", "file": "rows.jsonl"}
    arms, manifest = folder / "arms.yaml", folder / "manifest.json"
    arms.write_text(ARMS.format(url=url), encoding="utf-8")
    env = {"EVALHARNESS_DATA": str(folder)}
    if not manifest.exists():
        recipe = json.loads((ROOT / "manifests/recipes/gsm8k-1319.json").read_text())
        recipe["name"], recipe["suites"]["gsm8k"]["source"] = "bench", source
        recipe["suites"]["gsm8k"]["sampling"]["max_tokens"] = 256
        (folder / "recipe.json").write_text(json.dumps(recipe), encoding="utf-8")
        build = ["manifest", "build", str(folder / "recipe.json"), "--out", str(manifest)]
        subprocess.run(
            [sys.executable, "-m", "evalharness", *build],
            check=True, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    run = folder / f"run-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "evalharness", "factorial", "--arms", str(arms)]
    command += ["--manifest", str(manifest), "--concurrency", str(WIDTH), "--out", str(run)]
    return command, env


def lm_eval(url: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """lm-evaluation-harness, its own asynchronous client for chat completions."""
    task = folder / "tasks"
    task.mkdir(exist_ok=True)
    text = LM_EVAL_TASK.format(rows=folder / "rows.jsonl")
    (task / "bench_problems.yaml").write_text(text, encoding="utf-8")
    model = f"model=bench,base_url={url}/v1/chat/completions,num_concurrent={WIDTH},max_retries=1"
    command = [str(ensure(LM_EVAL) / "lm_eval"), "--model", "local-chat-completions"]
    command += ["--model_args", f"{model},tokenized_requests=False,tokenizer_backend=None"]
    command += ["--tasks", "bench_problems", "--include_path", str(task), "--apply_chat_template"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "x"}
    return command, {**offline, "HF_HOME": str(folder / "hf")}


def inspect(url: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """inspect_ai with its provider for any OpenAI-compatible endpoint."""
    task = folder / "bench_problems.py"
    task.write_text(INSPECT_TASK.format(rows=str(folder / "rows.jsonl")), encoding="utf-8")
    command = [str(ensure(INSPECT) / "inspect"), "eval", task.name]
    command += ["--model", "openai-api/bench/bench", "--max-connections", str(WIDTH)]
    command += ["--display", "none", "--log-dir", str(folder / "logs")]
    return command, {"BENCH_BASE_URL": f"{url}/v1", "BENCH_API_KEY": "x"}


TOOLS = (
    Tool("bare aiohttp loop", bare),
    Tool("evalharness", ours),
    Tool("lm-evaluation-harness", lm_eval),
    Tool("inspect_ai", inspect),
)


def measure(tool: Tool, url: str, folder: Path, expected: int) -> Round:
    """Run one whole process; SystemExit where it fails or did not ask every question once."""
    command, env = tool.prepare(url, folder)
    own = tool.prepare in (bare, ours)
    stats(url)
    log = folder / "output.txt"
    began_s = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT if own else folder,
            env={**environment(), **({"PYTHONPATH": str(ROOT)} if own else {}), **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began_s
    process.returncode = os.waitstatus_to_exitcode(status)
    found = stats(url)
    if process.returncode not in tool.exits or found["completions"] != expected:
        raise SystemExit(
            f"{tool.name}: exit {process.returncode}, {found['completions']} of {expected} "
            f"questions asked:\n{log.read_text(errors='replace')[-3000:]}"
        )
    return Round(
        wall_s=wall_s,
        phase_s=(found["last_ns"] - found["first_ns"]) / 1e9,
        cpu_s=usage.ru_utime + usage.ru_stime,
        rss_mib=usage.ru_maxrss / 1024,
    )


def main() -> int:
    """Measure and print a Markdown table; writes the figures as JSON where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=1319)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slow-rounds", type=int, default=2, help="of inspect_ai")
    parser.add_argument("--only", help="comma-separated names")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    wanted = args.only.split(",") if args.only else [tool.name for tool in TOOLS]
    tools = [tool for tool in TOOLS if tool.name in wanted]
    found: dict[str, list[Round]] = {tool.name: [] for tool in tools}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as name:
        folder = Path(name)
        write_rows(folder / "rows.jsonl", args.requests)
        with loopback_server() as url:
            for number in range(args.rounds + 1):
                for tool in tools if number % 2 else reversed(tools):
                    slow = tool.name == "inspect_ai"
                    if number > (args.slow_rounds if slow else args.rounds):
                        continue
                    one = measure(tool, url, folder, args.requests)
                    if number:  # the first round warms files and byte code
                        found[tool.name].append(one)
    figures = summary(found, args.requests)
    print(table(figures, args.requests))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


def summary(found: Mapping[str, Sequence[Round]], requests: int) -> dict[str, Any]:
    """Return medians by tool, and the ratio of its request phase to the bare loop's."""
    figures: dict[str, Any] = {}
    bare_rounds = found.get("bare aiohttp loop", [])
    for name, rounds in found.items():
        pairs = zip(bare_rounds, rounds, strict=False)
        ratios = [one.phase_s / other.phase_s for one, other in pairs]
        middle = {
            key: statistics.median(asdict(one)[key] for one in rounds)
            for key in Round.__dataclass_fields__
        }
        figures[name] = {
            "rounds": len(rounds),
            "requests_per_s": round(requests / middle["phase_s"]),
            "of_bare": round(statistics.median(ratios), 3) if ratios else None,
            "whole_process_s": round(middle["wall_s"], 2),
            "cpu_us_per_request": round(1e6 * middle["cpu_s"] / requests),
            "rss_mib": round(middle["rss_mib"]),
        }
    return figures


def table(figures: Mapping[str, Mapping[str, Any]], requests: int) -> str:
    """Return the Markdown table."""
    size = sum(len(row["question"]) for row in rows(50)) // 50
    lines = [
        f"{requests} questions of {size} characters at C{WIDTH}, answers of 407 characters.",
        "",
        "| | requests/s | of bare | whole process s | CPU us a request | MiB | rounds | kept |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name, row in figures.items():
        share = "" if row["of_bare"] is None else f"{row['of_bare']:.2f}"
        lines.append(
            f"| {name} | {row['requests_per_s']} | {share} | {row['whole_process_s']:.2f} | "
            f"{row['cpu_us_per_request']} | {row['rss_mib']} | {row['rounds']} | {KEPT[name]} |"
        )
    lines += [
        "",
        "Requests/s: by the server's clock, first request to last reply. CPU and memory: of the "
        "whole process, start-up included.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
