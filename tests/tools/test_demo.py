"""`make demo`: which manifest is asked, and that a begun run keeps its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalharness.manifest import load_manifest
from tools import demo, demo_pace

ROOT = Path(__file__).resolve().parents[2]


def test_the_pace_decides_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for step_s, size in ((0.02, "full"), (0.05, "medium"), (0.5, "small")):
        monkeypatch.setattr(demo_pace, "step_seconds", lambda step_s=step_s: step_s)
        assert demo.size_by_pace() == size
        assert f"{size} manifest" in capsys.readouterr().out


def test_a_step_is_really_computed() -> None:
    assert demo_pace.step_seconds() > 1e-3  # 540 MB of weights at 500 GB/s


def test_a_begun_run_keeps_its_manifest(tmp_path: Path) -> None:
    assert demo.started_size(tmp_path) is None
    for size, path in demo.MANIFESTS.items():
        name = load_manifest(ROOT / path).name
        (tmp_path / "plan.json").write_text(json.dumps({"manifest": {"name": name}}))
        assert demo.started_size(tmp_path) == size


def test_every_size_has_every_suite_and_the_full_one_enough_cases() -> None:
    entries = {size: load_manifest(ROOT / path).entries for size, path in demo.MANIFESTS.items()}
    for found in entries.values():
        assert {"bfcl", "schema", "gsm8k", "nll", "speed"} == set(found)
        assert len(found["nll"].case_ids) >= 16  # C16 is reached
    assert len(entries["full"]["nll"].case_ids) >= 60  # a mean's verdict
    assert [len(entries["full"][name].case_ids) for name in ("bfcl", "schema", "gsm8k")] == [
        16,
        8,
        8,
    ]
