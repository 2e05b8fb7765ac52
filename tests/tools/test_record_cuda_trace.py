"""The recorder on a CPU: it always comes back with a trace, and its sums are reproduced."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evalharness.trace.attribution import attribute
from evalharness.trace.chrome import read_trace
from evalharness.trace.families import default_families
from evalharness.trace.purity import judge
from tools import record_cuda_trace

pytest.importorskip("torch", reason="torch is not installed: the recorder needs it")


def record(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.record_cuda_trace", "--device", "cpu"]
    command += ["--out", str(folder), "--steps", "2", *more]
    root = Path(record_cuda_trace.__file__).parents[1]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_a_cpu_recording_is_read_back_with_the_profilers_sums(tmp_path: Path) -> None:
    done = record(tmp_path, "--operations", "gdn_split,qsa_expand", "--limit-s", "300")
    assert done.returncode == 0, done.stdout + done.stderr
    path = tmp_path / "h200-decode.json.gz"
    assert path.stat().st_size < record_cuda_trace.LIMIT_BYTES
    facts = json.loads((tmp_path / "h200-decode.facts.json").read_text())
    assert facts["operations"]["gdn_split"] == "ran"
    assert facts["operations"]["qsa_expand"] != "ran", "a kernel without a card leaves its reason"
    trace = read_trace(path)
    assert trace.kind == "cpu" and len(trace.steps) == 2
    assert judge([trace], concurrency=16).pure is True
    (device,) = attribute(trace, default_families())
    found = {one.name: (one.calls, one.time_ns / 1000) for one in device.kernels}
    own = {row["name"]: (row["calls"], row["us"]) for row in facts["totals"]}
    for name in ("aten::addmm", "aten::mm", "aten::linear", "kernels_sm70::gdn_split_zba"):
        if name in own:
            assert found[name][0] == own[name][0], name
            assert found[name][1] == pytest.approx(own[name][1], rel=0.02, abs=2.0), name
    assert "kernels_sm70::gdn_split_zba" in found
    total = sum(us for _, us in own.values())
    assert device.kernels_ns / 1000 == pytest.approx(total, rel=0.02)


def test_what_a_child_wrote_before_it_was_stopped_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def child(_args: object, operations: tuple[str, ...], limit_s: float) -> None:
        asked.append(tuple(operations))
        assert 1 < limit_s <= 5.0
        (tmp_path / "h200-decode.json.gz").write_bytes(b"x")

    monkeypatch.setattr(record_cuda_trace, "_child", child)
    assert record_cuda_trace.main(["--out", str(tmp_path), "--limit-s", "5"]) == 0
    assert asked == [tuple(record_cuda_trace.OURS)]


def test_a_child_that_left_nothing_is_followed_by_the_smallest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(
        record_cuda_trace, "_child", lambda _args, names, _limit_s: asked.append(tuple(names))
    )
    (tmp_path / "h200-decode.json.gz").write_bytes(b"of an earlier run")
    assert record_cuda_trace.main(["--out", str(tmp_path), "--limit-s", "5"]) == 1
    assert asked == [tuple(record_cuda_trace.OURS), ()]
    assert record_cuda_trace.main(["--out", str(tmp_path), "--limit-s", "0"]) == 1
    assert len(asked) == 2


def test_a_child_is_stopped_at_the_limit(tmp_path: Path) -> None:
    began_s = time.monotonic()
    done = record(tmp_path, "--limit-s", "1.5")
    assert time.monotonic() - began_s < 20
    assert "stopped after 1 s" in done.stdout and done.returncode == 1


def test_a_trace_over_the_limit_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def child(*_: object) -> None:
        large = b"x" * (record_cuda_trace.LIMIT_BYTES + 1)
        (tmp_path / "h200-decode.json.gz").write_bytes(large)

    monkeypatch.setattr(record_cuda_trace, "_child", child)
    assert record_cuda_trace.main(["--out", str(tmp_path)]) == 1


def test_an_unknown_operation_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        record_cuda_trace.main(["--out", str(tmp_path), "--operations", "nothing"])
    assert "there are gdn_split" in capsys.readouterr().err
