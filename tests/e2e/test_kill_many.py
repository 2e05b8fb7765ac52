"""A few of the kill -9 moments that `python -m tests.e2e.kill_many --times 200` tries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.kill_many import run_trials


@pytest.mark.slow
def test_nothing_is_lost_at_random_moments(tmp_path: Path) -> None:
    tally = run_trials(4, 20261129, tmp_path)
    assert tally.faults == []
    assert tally.trials == 4
    assert tally.killed >= 2, "most moments fall into a running launch"
