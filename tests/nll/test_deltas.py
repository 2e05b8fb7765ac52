"""Deltas on disk: joined by case, exact summaries, bounded memory."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalharness.errors import ManifestError, StoreError
from evalharness.nll.compare import MIN_CASES, compare, render
from evalharness.nll.deltas import ROW, sidecar, summarise, write_deltas
from evalharness.verdicts.nll_measured import MIN_CASES as JUDGED


def row(case_id: str, logprobs: Sequence[float | None], **changes: Any) -> dict[str, Any]:
    """A stored NLL row."""
    count = len(logprobs)
    made = {
        "case_id": case_id,
        "replicate": 0,
        "mode": "decode",
        "outcome": "observed",
        "reason": "valid",
        "token_ids": list(range(100, 100 + count)),
        "logprobs": list(logprobs),
        "pure": [True] * count,
    }
    return made | changes


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write rows as JSON Lines."""
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return path


def test_positive_means_less_likely_under_the_candidate(tmp_path: Path) -> None:
    control = write(tmp_path / "c", [row("a", [-1.0, -2.0]), row("b", [-3.0])])
    # Another order, and one token less likely by a nat.
    candidate = write(tmp_path / "t", [row("b", [-3.0]), row("a", [-1.0, -3.0])])
    written, excluded = write_deltas(control, candidate, tmp_path / "d")
    assert (written, excluded) == (3, [])
    found = summarise(tmp_path / "d", thresholds=(0.5, 2.0))
    assert found.case_ids == ("a", "b")
    assert found.sums.tolist() == [1.0, 0.0] and found.sizes.tolist() == [2, 1]
    assert found.exceed.tolist() == [[1, 0], [0, 0]]
    assert found.maximum is not None
    assert (found.maximum.case_id, found.maximum.position) == ("a", 1)
    assert (found.maximum.token_id, found.maximum.delta) == (101, 1.0)
    assert found.perplexity_control == pytest.approx(math.exp(6 / 3))
    assert found.perplexity_candidate == pytest.approx(math.exp(7 / 3))
    assert found.quantiles == {0.5: 0.0, 0.99: pytest.approx(0.98)}


def test_nulls_are_counted_and_left_out_of_every_sum(tmp_path: Path) -> None:
    control = write(tmp_path / "c", [row("a", [-1.0, None, -1.0])])
    candidate = write(tmp_path / "t", [row("a", [None, -2.0, -1.5])])
    write_deltas(control, candidate, tmp_path / "d")
    found = summarise(tmp_path / "d", thresholds=(0.1,))
    assert found.nulls == 2 and found.sizes.tolist() == [1] and found.sums.tolist() == [0.5]


def test_every_case_that_cannot_be_paired_is_named(tmp_path: Path) -> None:
    lost = {"outcome": "unobserved"}
    control = write(
        tmp_path / "c",
        [
            row("gone", [-1.0]),
            row("here", [-1.0]),
            row("lost", [-1.0]),
            row("mine", [], **(lost | {"reason": "timeout"})),
            row("other", [-1.0]),
            row("mode", [-1.0]),
        ],
    )
    candidate = write(
        tmp_path / "t",
        [
            row("here", [-1.0]),
            row("lost", [], **(lost | {"reason": "token_count:3 of 4"})),
            row("mine", [-1.0]),
            row("other", [-1.0], token_ids=[7]),
            row("mode", [-1.0], mode="prefill"),
            row("new", [-1.0]),
        ],
    )
    written, excluded = write_deltas(control, candidate, tmp_path / "d")
    assert written == 1
    assert {one.case_id: one.reason for one in excluded} == {
        "gone": "missing from the candidate's rows",
        "lost": "candidate unobserved: token_count:3 of 4",
        "mine": "control unobserved: timeout",
        "other": "the forced tokens differ",
        "mode": "modes differ: decode and prefill",
        "new": "missing from the control's rows",
    }


def test_pure_only_needs_both_sides(tmp_path: Path) -> None:
    control = write(tmp_path / "c", [row("a", [-1.0, -1.0, -1.0], pure=[True, True, False])])
    candidate = write(tmp_path / "t", [row("a", [-2.0, -3.0, -4.0], pure=[False, True, True])])
    write_deltas(control, candidate, tmp_path / "d")
    found = summarise(tmp_path / "d", thresholds=(), pure_only=True)
    assert found.sizes.tolist() == [1] and found.sums.tolist() == [2.0]


def test_a_repeated_case_or_a_cut_file_is_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "c", [row("a", [-1.0])])
    two = write(tmp_path / "t", [row("a", [-1.0]), row("a", [-1.0])])
    with pytest.raises(StoreError, match="twice"):
        write_deltas(one, two, tmp_path / "d")
    with pytest.raises(StoreError, match="twice"):
        write_deltas(two, one, tmp_path / "d")
    write_deltas(one, one, tmp_path / "d")
    (tmp_path / "d").write_bytes(b"\0" * (ROW.itemsize - 1))
    with pytest.raises(StoreError, match="write the deltas again"):
        summarise(tmp_path / "d", thresholds=())


def test_comparison_names_the_largest_delta_and_agrees_with_a_hand_calculation(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(3)
    base = {f"k{i:02d}": -np.abs(rng.normal(2, 1, 12)) for i in range(30)}
    shift = {case: values - 0.05 - 0.01 * rng.normal(size=12) for case, values in base.items()}
    control = write(tmp_path / "c", [row(k, v.tolist()) for k, v in base.items()])
    candidate = write(tmp_path / "t", [row(k, v.tolist()) for k, v in shift.items()])
    found = compare(
        control, candidate, tmp_path / "d", thresholds=(0.01, 1.0), pure_only=False, seed=1
    )
    mean = np.mean([base[k] - shift[k] for k in base])
    assert found.token_mean.estimate == pytest.approx(mean, abs=1e-6)
    assert found.case_mean.estimate == pytest.approx(mean, abs=1e-6)
    assert 0.04 < found.token_mean.lower < mean < found.token_mean.upper < 0.06
    assert found.shares[0.01].estimate > 0.9 and found.shares[1.0].estimate == 0.0
    assert "largest |delta|" in render(found)
    with pytest.raises(ManifestError, match="2 or more"):
        compare(
            write(tmp_path / "o", [row("k00", [-1.0])]),
            candidate,
            tmp_path / "d",
            thresholds=(),
            pure_only=False,
            seed=1,
        )


BAD_ROWS: list[tuple[Any, str]] = [
    (b"\xff", "not JSON"),
    (b"[" * 100_000, "not JSON"),
    (b"[]", "expected an object"),
    ({"case_id": []}, "case_id: "),
    ({"replicate": None}, "replicate: "),
    ({"replicate": 0.5}, "replicate: "),
    ({"outcome": 5}, "outcome: "),
    ({"mode": None}, "mode: "),
    ({"token_ids": None}, "token_ids: "),
    ({"token_ids": [1 << 32]}, "token_ids: "),
    ({"token_ids": [10**30]}, "token_ids: "),
    ({"logprobs": 5}, "logprobs: "),
    ({"logprobs": ["x"]}, "logprobs: "),
    ({"logprobs": [math.nan]}, "logprobs: "),
    ({"logprobs": [-1e308]}, "logprobs: "),
    ({"logprobs": []}, "1 token_ids, 0 logprobs, 1 pure"),
    ({"pure": 5}, "pure: "),
    ({"pure": [True, True]}, "1 token_ids, 1 logprobs, 2 pure"),
]


@pytest.mark.parametrize(("bad", "told"), BAD_ROWS)
def test_a_malformed_row_is_named_and_leaves_the_deltas_that_were_there(
    tmp_path: Path, bad: Any, told: str
) -> None:
    sound = write(tmp_path / "s", [row("a", [-1.0]), row("b", [-1.0])])
    write_deltas(sound, sound, tmp_path / "d")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    line = json.dumps(row("b", [-1.0]) | bad).encode() if isinstance(bad, dict) else bad
    damaged = tmp_path / "x"
    damaged.write_bytes(json.dumps(row("a", [-1.0])).encode() + b"\n" + line + b"\n")
    for pair in ((sound, damaged), (damaged, sound)):
        with pytest.raises(StoreError) as error:
            write_deltas(*pair, tmp_path / "d")
        assert f"{damaged} line 2: " in str(error.value) and told in str(error.value)
    damaged.unlink()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_deltas_never_go_over_the_rows_that_they_are_of(tmp_path: Path) -> None:
    rows = write(tmp_path / "c.json", [row("a", [-1.0])])
    before = rows.read_bytes()
    for target in (rows, tmp_path / "c"):  # whose sidecar is c.json
        with pytest.raises(StoreError, match="is the input"):
            write_deltas(rows, rows, target)
    assert rows.read_bytes() == before and list(tmp_path.iterdir()) == [rows]


def test_a_perplexity_beyond_all_numbers_is_infinite(tmp_path: Path) -> None:
    rows = write(tmp_path / "c", [row("a", [-9e4])])
    write_deltas(rows, rows, tmp_path / "d")
    assert summarise(tmp_path / "d", thresholds=()).perplexity_control == math.inf


PROGRAM = """
import json, sys
import numpy as np
from pathlib import Path
from evalharness.nll.deltas import ROW, sidecar, summarise
path, rows, cases = Path(sys.argv[1]), int(sys.argv[2]), 2000
rng = np.random.default_rng(0)
with path.open("wb") as out:
    for start in range(0, rows, 1 << 18):
        block = np.zeros(min(1 << 18, rows - start), dtype=ROW)
        block["case"] = (np.arange(start, start + len(block)) * cases) // rows
        block["control"] = rng.normal(-2, 1, len(block))
        block["candidate"] = block["control"] + rng.normal(0, 0.1, len(block)).astype("f4")
        out.write(block.tobytes())
sidecar(path).write_text(json.dumps({"format": "evalharness/nll-deltas/1", "rows": rows,
    "cases": [str(i) for i in range(cases)]}))
found = summarise(path, thresholds=(0.1, 0.5))
assert int(found.sizes.sum()) == rows
# Not ru_maxrss: a child starts with its parent's peak there.
status = Path('/proc/self/status').read_text()
peak_kib = int(status.split('VmHWM:')[1].split()[0])
print(peak_kib // 1024, found.quantiles[0.5])
"""


@pytest.mark.slow
def test_ten_million_tokens_are_summarised_under_one_gib(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "d"), str(10_000_000)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    peak_mib, median = done.stdout.split()
    # The pages of the mapped file count too, though the system may drop them at any time.
    assert int(peak_mib) < 1024, f"{peak_mib} MiB"
    assert abs(float(median)) < 1e-3
    assert sidecar(tmp_path / "d").is_file()


@pytest.mark.parametrize(("cases", "carried"), [(59, False), (60, True)])
def test_a_mean_of_too_few_cases_is_written_without_an_interval(
    tmp_path: Path, cases: int, carried: bool
) -> None:
    assert MIN_CASES == JUDGED
    names = [f"c{i:03d}" for i in range(cases)]
    control = write(tmp_path / "c", [row(one, [-1.0, -2.0]) for one in names])
    candidate = write(
        tmp_path / "t", [row(one, [-1.0, -2.0 - i / 1000]) for i, one in enumerate(names)]
    )
    found = compare(control, candidate, tmp_path / "d", thresholds=(0.01,), pure_only=False, seed=7)
    text = render(found)
    means = [line for line in text.splitlines() if line.startswith("mean delta")]
    assert len(means) == 2 and all(("[" in line) == carried for line in means)
    assert (f"no interval of the mean: {cases} cases, a mean NLL needs 60" in text) != carried


def test_equal_tokens_have_no_interval_and_no_largest_delta(tmp_path: Path) -> None:
    both = [write(tmp_path / one, [row(f"c{i}", [-1.0]) for i in range(60)]) for one in "ct"]
    found = compare(*both, tmp_path / "d", thresholds=(0.01,), pure_only=False, seed=7)
    text = render(found)
    assert "[" not in text and text.count("no interval: every case has the same value") == 3
    assert "largest |delta|  none: every token delta is exactly zero" in text
    assert "a sample extreme" not in text
