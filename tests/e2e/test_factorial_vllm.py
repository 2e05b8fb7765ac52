"""The factorial on real vLLM, on the CPU: two arms, C1 and C4, a handful of cases.

The second arm is broken on purpose (a norm's epsilon a thousand times too large): its responses
must differ. A level that vLLM does not know must stop the run instead.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fake_run import ROOT, processes_of

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1500)]
RUN_TIMEOUT_S = 1200
BROKEN = json.dumps({"rms_norm_eps": 0.05})
SERVER = """\
server:
  args: [--max-model-len, "2048", --max-num-seqs, "4", --enforce-eager, --enable-auto-tool-choice,
         --tool-call-parser, hermes, --dtype, float32]
  env: {VLLM_CPU_KVCACHE_SPACE: "1", VLLM_CPU_OMP_THREADS_BIND: nobind, OMP_NUM_THREADS: "2",
        HF_HUB_OFFLINE: "1"}
  ready_timeout_s: 420
"""


@dataclass(frozen=True, slots=True)
class Work:
    """A factorial's files."""

    folder: Path
    arms: Path
    manifest: Path

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def finish(self, *more: str) -> tuple[int, str]:
        """Run the factorial to its end."""
        done = subprocess.run(
            [
                *(sys.executable, "-m", "evalharness", "factorial", "--arms", str(self.arms)),
                *("--manifest", str(self.manifest), "--out", str(self.run)),
                *("--concurrency", "1,4", *more),
            ],
            cwd=ROOT,
            env=dict(os.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout


def work_in(folder: Path, model: Path, factors: str) -> Work:
    manifest = json.loads((ROOT / "manifests/smoke.json").read_text())
    for entry in manifest["suites"].values():
        entry["sampling"]["max_tokens"] = 16
    work = Work(folder, folder / "arms.yaml", folder / "manifest.json")
    work.manifest.write_text(json.dumps(manifest))
    work.arms.write_text(
        f"model: {{path: {model}, served_name: demo}}\n{SERVER}{factors}aa: false\n"
        "plan: {alpha: 0.025, margins: {schema: 0.1, gsm8k: 0.1}, gate_concurrency: [1, 4]}\n"
    )
    return work


@pytest.fixture(scope="module")
def finished(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed: make the environment with requirements/install.py")
    folder = tmp_path_factory.mktemp("factorial")
    factors = (
        f"factors: {{norm: {{right: {{}}, broken: {{args: [--hf-overrides, '{BROKEN}']}}}}}}\n"
        "control: {norm: right}\n"
    )
    work = work_in(folder, demo_model, factors)
    code, output = work.finish()
    assert code == 0, output
    yield work
    assert processes_of(work.run) == []


def servers(work: Work) -> Mapping[str, dict[str, Any]]:
    paths = work.run.glob("arms/*/*/server.json")
    return {path.parts[-3]: json.loads(path.read_text()) for path in paths}


def bodies(work: Work, arm: str) -> dict[tuple[str, str], str]:
    found = {}
    for path in work.run.glob(f"responses/{arm}/*/*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            assert row["status"] == "ok", row
            message = json.loads(row["body"])["choices"][0]["message"]
            found[path.name, row["case_id"]] = message["content"]
    return found


def test_the_servers_say_what_they_are(finished: Work) -> None:
    found = servers(finished)
    assert sorted(found) == ["control", "norm"]
    for server in found.values():
        assert server["vllm_version"]
        assert server["system_fingerprint"].startswith("vllm-")
        assert server["runner"] == "v1"
        assert server["model_files"]["model.safetensors"]
        assert server["stopped"] == {**server["stopped"], "signal": "SIGTERM"}
        assert server["env"]["VLLM_PLUGINS"] == ""
        assert server["env"]["VLLM_API_KEY"] == "<redacted>"
    assert found["norm"]["levels"]["norm"]["in_effect"] is True
    assert found["control"]["digest"] != found["norm"]["digest"]


def test_every_cell_is_complete_and_its_cache_was_reset(finished: Work) -> None:
    records = [json.loads(p.read_text()) for p in finished.run.glob("responses/*/*/*.cell.json")]
    assert len(records) == 2 * 2 * 2
    for record in records:
        assert (record["state"], record["prefix_cache_reset"]) == ("complete", "ok"), record
        assert record["prompt_tokens"] > 0
        assert record["output_tokens"] > 0


def test_a_broken_level_changes_the_responses(finished: Work) -> None:
    control, broken = bodies(finished, "control"), bodies(finished, "norm")
    assert control.keys() == broken.keys()
    differing = [key for key in control if control[key] != broken[key]]
    assert len(differing) >= len(control) // 2


def test_rescoring_gives_the_same_bytes_without_a_server(finished: Work) -> None:
    scores = {p: p.read_bytes() for p in finished.run.glob("scores/*/*/*/*.jsonl")}
    # schema has one reading, gsm8k three, in two arms at two levels
    assert len(scores) == (1 + 3) * 2 * 2
    done = subprocess.run(
        [sys.executable, "-m", "evalharness", "rescore", str(finished.run)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(path.read_bytes() == data for path, data in scores.items())


def test_the_same_command_again_starts_nothing(finished: Work) -> None:
    code, output = finished.finish()
    assert code == 0, output
    assert "starting the server" not in output
    assert len(servers(finished)) == 2


def test_a_flag_that_vllm_does_not_know_stops_the_run(demo_model: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed: make the environment with requirements/install.py")
    factors = (
        'factors: {kernel: {off: {}, on: {env: {VLLM_NO_SUCH_KERNEL: "1"}}}}\n'
        "control: {kernel: off}\n"
    )
    work = work_in(tmp_path, demo_model, factors)
    seed = next(s for s in range(99) if first_launch(work, s) == "kernel")
    code, output = work.finish("--seed", str(seed))
    assert code == 3, output
    assert "level not in effect: kernel: on - vLLM does not know VLLM_NO_SUCH_KERNEL" in output
    assert processes_of(work.run) == []
    assert not list(work.run.glob("responses/*/*/*.jsonl"))


def first_launch(work: Work, seed: int) -> str:
    from evalharness.arms import launch_order, load_arms_file

    file = load_arms_file(work.arms)
    names = [arm.name for arm in file.arms]
    return launch_order(names, aa=file.aa, order=file.order, seed=seed, replays=1)[0].arm
