"""What holds for every test: no timing decides one, and none moves the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Both would fail a sound test on a busy machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _same_working_directory() -> Iterator[None]:
    """Fail the test that leaves the process elsewhere: later tests read paths relative to it."""
    before = Path.cwd()
    yield
    after = Path.cwd()
    os.chdir(before)
    assert after == before, f"the test left the process in {after}; use monkeypatch.chdir"
