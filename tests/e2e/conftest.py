"""Shared by every test that needs a real vLLM: one model, and servers started once."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.vllm_server import Servers

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The demo's model directory: EVALHARNESS_DEMO_MODEL, else .demo/model."""
    named = os.environ.get("EVALHARNESS_DEMO_MODEL")
    path = Path(named or ROOT / ".demo" / "model").absolute()
    if not (path / "config.json").is_file():
        # Whoever names a model wants these tests run: a skip would pass for a green run.
        say = pytest.fail if named else pytest.skip
        say(f"no model at {path}: run `make model`, or set EVALHARNESS_DEMO_MODEL")
    return path


@pytest.fixture(scope="session")
def vllm_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers by launch; a launch that two tests ask for is started once."""
    if importlib.util.find_spec("vllm") is None:
        say = pytest.fail if os.environ.get("EVALHARNESS_DEMO_MODEL") else pytest.skip
        say("vLLM is not installed: make the environment with requirements/install.py")
    servers = Servers(tmp_path_factory.mktemp("vllm"))
    yield servers
    servers.close()
