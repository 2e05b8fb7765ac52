# SPDX-License-Identifier: Apache-2.0
"""The parts of bench, checks and counters that need no GPU: verdicts, measures, children."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from kernels_sm70 import counters, gpu_checks, gpu_children, gpu_suite
from kernels_sm70.bench import harness
from kernels_sm70.bench.harness import Absent, Case, Row, Target

CPU = torch.device("cpu")


def row(name: str, us: float | None, floor_us: float = 2.0) -> Row:
    floors = None if us is None else us / floor_us
    fraction = None if us is None else floor_us / us
    return Row("op", "M4", name, us, us, us, 100, floor_us, floors, fraction)


def verdict(target: Target, **times: float | None) -> Row:
    rows = [row(name, us) for name, us in times.items()]
    case = Case("op", "M4", 100, lambda device, sets: {}, {"ours": target})
    harness._compare(case, rows)
    return rows[0]


def test_targets_are_judged_against_floor_and_baseline() -> None:
    assert verdict(Target(max_floors=2.0), ours=4.0).met is True
    assert verdict(Target(max_floors=2.0), ours=4.1).met is False
    both = Target(max_floors=2.0, min_speedup=1.2, baseline="base")
    assert verdict(both, ours=3.0, base=3.7).met is True
    assert verdict(both, ours=3.0, base=3.5).met is False
    assert verdict(both, ours=5.0, base=9.0).met is False


def test_an_absent_baseline_leaves_the_target_undecided() -> None:
    found = verdict(Target(min_speedup=1.2, baseline="base"), ours=3.0, base=None)
    assert found.met is None
    assert "absent" in found.note


def test_losses_and_absences_stay_in_the_table() -> None:
    lost, gone = row("slow", 9.0), row("gone", None)
    lost.met, gone.note = False, "not installed"
    text = harness.table([lost, gone])
    assert "slow" in text
    assert "| no |" in text
    assert "absent: not installed" in text


def test_row_medians_and_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("op", "M4", 8_000_000, lambda *_: {"ours": Absent("no card")}, {})
    (found,) = harness.run_case(case, CPU, bytes_per_s=4e12)
    assert found.us is None
    assert found.floor_us == pytest.approx(2.0)
    timed = harness._row(case, "ours", [5.0, 3.0, 4.0, 100.0, 4.0], 2.0, "")
    assert timed.us == 4.0
    assert timed.floors == pytest.approx(2.0)
    assert timed.floor_fraction == pytest.approx(0.5)


def test_measures() -> None:
    exact = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    half = exact.half()
    assert gpu_checks.relative_l2(half, exact) == 0.0
    assert gpu_checks.max_ulp(half, exact) == 0
    moved = (half.view(torch.int16) + torch.tensor([0, 1, 2], dtype=torch.int16)).view(
        torch.float16
    )
    assert gpu_checks.max_ulp(moved, exact) == 2
    crossing = torch.tensor([-(2.0**-24)], dtype=torch.float16)
    assert gpu_checks.max_ulp(crossing, torch.tensor([2.0**-24]).double()) == 2
    assert gpu_checks.relative_l2(torch.tensor([float("nan")]), exact[:1]) == float("inf")
    with pytest.raises(AssertionError, match="exceeds the bound"):
        gpu_checks.assert_close(moved, exact, rel_l2=1e-6, what="x")
    with pytest.raises(AssertionError, match="2 ulp"):
        gpu_checks.assert_close(moved, exact, rel_l2=1.0, what="x", ulp=1)


def test_poison_is_nan_and_bits_are_compared() -> None:
    half, single = torch.zeros(4).half(), torch.zeros(4)
    gpu_checks.poison([half, single])
    assert half.isnan().all()
    assert single.isnan().all()
    assert gpu_checks.same_bits(half, half.clone())
    assert not gpu_checks.same_bits(half, torch.zeros(4).half())
    assert not gpu_checks.same_bits(torch.zeros(1).half(), -torch.zeros(1).half())


def test_counters_keep_their_address_and_bin_large_m() -> None:
    counters.reset()
    address = counters.row("test_route.hit", CPU).data_ptr()
    for rows in (2, 2, 64, 65, 4096):
        counters.count("test_route.hit", rows, CPU)
    assert counters.snapshot()["cpu"]["test_route.hit"] == {"2": 2, "64": 1, ">64": 2}
    counters.reset()
    assert counters.snapshot()["cpu"]["test_route.hit"] == {}
    assert counters.row("test_route.hit", CPU).data_ptr() == address


def child(tmp_path: Path, code: str, *, must_say: str = "") -> dict[str, object]:
    """A child that runs `code` instead of the suite."""
    import subprocess

    log = tmp_path / "child.log"
    with log.open("wb") as sink:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=sink, stderr=sink)
    one = gpu_children.Child("child", process, tmp_path / "child.json", log, must_say)
    return gpu_children.finish(one, timeout_s=20.0)


def test_a_child_that_dies_is_a_failure(tmp_path: Path) -> None:
    document = child(tmp_path, "import os; print('last words', flush=True); os.abort()")
    (failure,) = document["failures"]  # type: ignore[misc]
    assert "exit -6" in failure["check"]
    assert "last words" in failure["traceback"]


def test_a_silent_sanitizer_is_a_failure(tmp_path: Path) -> None:
    document = child(tmp_path, "print('fine')", must_say="SUMMARY")
    assert len(document["failures"]) == 1  # type: ignore[arg-type]
    assert not child(tmp_path, "print('SUMMARY')", must_say="SUMMARY")["failures"]


def test_the_suite_refuses_without_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_suite.main(["--out", "unused"]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_the_suite_refuses_unknown_operations() -> None:
    with pytest.raises(SystemExit):
        gpu_suite.main(["--only", "no_such_operation"])
