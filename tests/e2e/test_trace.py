"""A profile of a real vLLM (CPU build) in pure decode, and one that another's prefill spoils."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from evalharness.errors import IncompleteError
from evalharness.trace.command import trace_run
from evalharness.trace.families import UNKNOWN
from tests.e2e.nll_arms import float32_key
from tests.e2e.vllm_server import TRACES, RunningServer, Servers

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
FORMATS = Path(__file__).parents[2] / "evalharness" / "formats"


@pytest.fixture(scope="module")
def server(vllm_servers: Servers, demo_model: Path) -> Iterator[RunningServer]:
    TRACES.mkdir(exist_ok=True)
    yield vllm_servers.get(float32_key(demo_model))
    shutil.rmtree(TRACES, ignore_errors=True)


def trace(
    server: RunningServer, folder: Path, monkeypatch: pytest.MonkeyPatch, *, concurrency: int
) -> dict[str, Any]:
    run = folder / "run"
    run.mkdir()
    plan = json.loads((FORMATS / "examples/plan.json").read_text())
    (run / "plan.json").write_text(json.dumps(plan))
    monkeypatch.setenv("TRACED_KEY", server.api_key)
    asked = {
        "concurrency": concurrency,
        "confirm": 6,
        "outputs": 5,
        "prompt_words": 12,
        "timeout_s": 300.0,
    }
    running = {"base_url": server.base_url, "api_key_env": "TRACED_KEY", "trace_dir": TRACES}
    document, _ = trace_run(run, "control", asked=asked, running=running, say=lambda _text: None)
    return document


def test_decode_at_c16_by_family(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = trace(server, tmp_path, monkeypatch, concurrency=16)
    jsonschema.validate(document, json.loads((FORMATS / "trace.schema.json").read_text()))
    purity = document["purity"]
    assert (purity["pure"], purity["witnesses"]) == (True, ["annotations", "counters"])
    assert set(purity["step_kinds"]) <= {"0 in prefill, 16 in decode", "0 in prefill, 0 in decode"}
    assert purity["steps"] >= 5
    assert document["profile"]["prompt_tokens"] is not None
    (device,) = document["devices"]
    assert document["files"][0]["kind"] == "cpu"
    assert device["kernels_ns"] - device["overlap_ns"] + device["gap_ns"] == device["envelope_ns"]
    assert sum(row["time_ns"] for row in device["families"]) == device["kernels_ns"]
    share = {row["family"]: row["share"] for row in device["families"]}
    sys.stdout.write(f"shares of a decode step at C16: {share}\n")
    assert max(share, key=lambda family: share[family]) == "gemm"
    assert share["attention"] > 0 and share["kv cache"] > 0
    assert share.get(UNKNOWN, 0.0) < 0.02, device["unknown"]
    # 30 layers, one attention in each: every step of the profile is whole, and none is missing.
    calls = {row["name"]: row["calls"] for row in device["kernels"]}
    attention = [calls[name] for name in calls if "attention_with_kv_cache" in name]
    assert attention == [30 * purity["steps"]]


def test_another_clients_prefill_is_refused(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def ask_on_and_on() -> None:
        body = json.dumps({"model": server.model, "prompt": "one two", "max_tokens": 1}).encode()
        headers = {
            "Authorization": f"Bearer {server.api_key}",
            "Content-Type": "application/json",
        }
        while not over.is_set():
            request = urllib.request.Request(
                f"{server.base_url}/v1/completions", data=body, headers=headers
            )
            with urllib.request.urlopen(request, timeout=60) as reply:
                reply.read()

    other = threading.Thread(target=ask_on_and_on)
    other.start()
    try:
        with pytest.raises(IncompleteError, match="steps had prefill in them") as caught:
            trace(server, tmp_path, monkeypatch, concurrency=4)
    finally:
        over.set()
        other.join()
    assert "another client's prefill is in the trace" in str(caught.value)
