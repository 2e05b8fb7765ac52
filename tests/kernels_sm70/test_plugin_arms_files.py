"""Every arms file of ours is valid, tells its arms apart, and asks only for flags that exist."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernels_sm70.vllm_hooks.flags import read_flags

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "manifests" / "arms"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.stem.startswith(("flag-", "sm70")))
WANTED = {
    "sm70": {"control", "hc", "moe", "hc+moe", "fault"},
    "sm70-checks": {
        *("control", "stock", "gdn", "qsa", "prefix"),
        *("gdn+hcmoe+eager", "gdn+hcmoe+prefix"),
    },
    "sm70-tp2": {"control", "hc=on+moe+gdn", "hc=sharded"},
}
VLLM_FLAGS = {
    "dtype",
    "kv-cache-dtype",
    "graphs",
    "chunked-prefill",
    "prefix-caching",
    "async-scheduling",
    "attention-backend",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with something where each file's models are said to be."""
    folder = tmp_path_factory.mktemp("place")
    for name in (".demo/model", ".sm70/rank", ".sm70/fault", ".sm70/pair"):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps({"model_type": "llama", "of": name}))
    return folder


def dry_run(file: Path, place: Path) -> dict[str, dict[str, object]]:
    argv = [sys.executable, "-m", "evalharness", "arms", str(file), "--dry-run", "--json"]
    done = subprocess.run(
        argv, cwd=place, capture_output=True, text=True, check=False, env=environment()
    )
    assert done.returncode == 0, done.stderr
    return {arm["name"]: arm for arm in json.loads(done.stdout)["arms"]}


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_there_is_a_file_for_each_flag() -> None:
    assert {p.stem.removeprefix("flag-") for p in FILES if p.stem.startswith("flag-")} == VLLM_FLAGS
    assert {p.stem for p in FILES if p.stem.startswith("sm70")} == set(WANTED)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_arms(file: Path, place: Path) -> None:
    arms = dry_run(file, place)
    digests = {str(arm["digest"]) for arm in arms.values()}
    assert len(digests) == len(arms) > 1
    assert set(arms) == WANTED.get(file.stem, set(arms))
    for arm in arms.values():
        env = dict(arm["env"])  # type: ignore[call-overload]
        on = [name for name, value in read_flags(env).items() if value]
        # A flag without the plugin would serve the control under the candidate's name.
        assert not on or env["VLLM_PLUGINS"] == "kernels_sm70"
