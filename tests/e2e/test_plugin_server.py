"""The tiny Qwen4Exp served by vLLM's CPU build: stock, plugin with flags off, plugin with flags on.

The stand-ins for the Triton pieces (tests/kernels_sm70/qwen4exp_cpu) are in every server, so what
differs between two of them is the plugin alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = ROOT / "tests" / "kernels_sm70" / "qwen4exp_cpu"
FLAGS = {
    "VLLM_SM70_QWEN38_BATCH_HC_FP16": "1",
    "VLLM_SM70_GDN_BATCH_SPLIT_COPY": "1",
    "VLLM_SM70_QWEN38_GROUPED_MOE": "1",
}
READY_S, STOP_S = 240.0, 30.0
DECODED = 12
LAYERS, BOUNDARIES = 2, 5  # boundaries: two a layer and the last mixer

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM is not installed in this environment"
    ),
]


@dataclass
class Served:
    """What one server answered, and what its plugin wrote."""

    alone: list[Any] = field(default_factory=list)
    together: list[Any] = field(default_factory=list)
    hits: list[dict[str, Any]] = field(default_factory=list)
    log: str = ""
    exit_code: int | None = None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model without an indexer, made by the script as a user would."""
    out = tmp_path_factory.mktemp("tiny") / "model"
    script = ROOT / "tools" / "tiny_qwen4exp" / "make_model.py"
    subprocess.run([sys.executable, str(script), "--size", "cpu", "--out", str(out)], check=True)
    return out


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose metadata names both plugins."""
    folder = tmp_path_factory.mktemp("site")
    points = {
        "qwen4exp_cpu": "qwen4exp_cpu:register",
        "kernels_sm70": "kernels_sm70.plugin:register",
    }
    for name, value in points.items():
        info = folder / f"{name}_test-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-test\nVersion: 0\n")
        (info / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{name} = {value}\n")
    return folder


def environment(site: Path, hits: Path, plugins: str, flags: dict[str, str]) -> dict[str, str]:
    """The server's environment: nothing of ours from outside but what the test names."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "EVALHARNESS_"))}
    return (
        kept
        | flags
        | {
            "PYTHONPATH": os.pathsep.join((str(site), str(STAND_INS), str(ROOT))),
            "VLLM_PLUGINS": plugins,
            "EVALHARNESS_ROUTE_HITS_DIR": str(hits),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "2",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
    )


def start(model: Path, port: int, log: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, writing its log to a file."""
    argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    argv += ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--max-model-len", "1024", "--max-num-seqs", "16", "--enforce-eager"]
    argv += ["--no-enable-prefix-caching"]
    with log.open("wb") as stream:
        return subprocess.Popen(
            argv, env=env, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )


def wait_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    """True once /health answers; False if the process ends first."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return False
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    raise TimeoutError(f"not ready after {READY_S} s")


def complete(port: int, prompts: list[str]) -> list[Any]:
    """Token ids and log-probabilities of greedy completions, in the prompts' order."""
    body = {
        "model": "tiny",
        "prompt": prompts,
        "max_tokens": DECODED,
        "temperature": 0,
        "logprobs": 0,
        "return_token_ids": True,
        "ignore_eos": True,
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        choices = sorted(json.load(answer)["choices"], key=lambda choice: choice["index"])
    return [(c["token_ids"], c["logprobs"]["token_logprobs"]) for c in choices]


def serve(model: Path, site: Path, folder: Path, *, plugins: str, flags: dict[str, str]) -> Served:
    """Run one server through the same requests, then stop it and read what it left."""
    hits, log = folder / "hits", folder / "server.log"
    folder.mkdir()
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    process = start(model, port, log, environment(site, hits, plugins, flags))
    served = Served()
    try:
        if wait_ready(process, port):
            served.alone = complete(port, ["Janet has 3 apples and sells"])
            served.together = complete(port, [f"{n} ducks lay eggs" for n in range(8)])
            time.sleep(1.5)  # the counts are written twice a second
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            served.exit_code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            served.exit_code = process.wait(STOP_S)
    served.hits = [json.loads(path.read_text()) for path in sorted(hits.glob("*.json"))]
    served.log = log.read_text(errors="replace")
    return served


@pytest.fixture(scope="module")
def arms(
    model: Path, site: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Served]]:
    """stock, off (plugin loaded, flags at 0) and on (three routes by their references)."""
    folder = tmp_path_factory.mktemp("arms")
    both = "qwen4exp_cpu,kernels_sm70"
    settings: dict[str, tuple[str, dict[str, str]]] = {
        "stock": ("qwen4exp_cpu", {}),
        "off": (both, dict.fromkeys(FLAGS, "0")),
        "on": (both, FLAGS | {"KERNELS_SM70_CPU_REFERENCE": "1"}),
    }
    yield {
        name: serve(model, site, folder / name, plugins=plugins, flags=flags)
        for name, (plugins, flags) in settings.items()
    }


def test_flags_off_keep_every_bit(arms: dict[str, Served]) -> None:
    assert len(arms["stock"].alone[0][0]) == DECODED
    assert arms["off"].alone == arms["stock"].alone
    assert [ids for ids, _ in arms["off"].together] == [ids for ids, _ in arms["stock"].together]
    assert arms["off"].hits == []


def test_flags_on_count_every_decode_step(arms: dict[str, Served]) -> None:
    (document,) = arms["on"].hits
    schema = json.loads((ROOT / "evalharness/formats/route_hits.schema.json").read_text())
    jsonschema.validate(document, schema)
    hits: dict[str, dict[int, int]] = {}
    for row in document["routes"]:
        hits.setdefault(row["route"], {})[row["m"]] = row["hits"]
    assert set(hits) == {"gdn_split", "hyper_connection", "moe_grouped"}
    steps = hits["gdn_split"][8]
    # Eight sequences decode together in all steps but those of their arrival.
    assert DECODED - 3 <= steps <= DECODED
    assert hits["hyper_connection"][8] == BOUNDARIES * steps
    assert hits["moe_grouped"][8] == LAYERS * steps
    alone = {row["route"]: row["hits"] for row in document["fallbacks"] if row["m"] == 1}
    # The first token of the lone request comes from its prefill.
    assert alone["gdn_split"] == DECODED - 1
    assert alone["hyper_connection"] == BOUNDARIES * (DECODED - 1)
    assert document["rank"] == 0 and document["flags"]["VLLM_SM70_GDN_BATCH_SPLIT_COPY"] is True


def test_flags_on_change_the_numbers_but_not_by_much(arms: dict[str, Served]) -> None:
    """Other summation orders must show somewhere; the first tokens must still agree closely."""
    on, stock = arms["on"].together, arms["stock"].together
    first = [abs(a[1][0] - b[1][0]) for a, b in zip(on, stock, strict=True)]
    assert max(first) < 0.1
    assert [x[1] for x in on] != [x[1] for x in stock]


def refused(model: Path, site: Path, folder: Path, flags: dict[str, str]) -> Served:
    served = serve(model, site, folder, plugins="qwen4exp_cpu,kernels_sm70", flags=flags)
    assert served.exit_code not in (0, None)
    assert served.alone == [] and served.hits == []
    return served


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"VLLM_SM70_GDN_BATCH_SPLIT_COPY": "yes"}, "expected 0 or 1"),
        ({"VLLM_SM70_GDN_BATCH_SPLIT_COPY": "1"}, "this vLLM serves on the CPU"),
    ],
)
def test_a_refusal_stops_the_server_before_the_model_loads(
    model: Path, site: Path, tmp_path: Path, flags: dict[str, str], words: str
) -> None:
    served = refused(model, site, tmp_path / "arm", flags)
    assert words in served.log
    assert "Starting to load model" not in served.log
