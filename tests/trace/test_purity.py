"""The gate opens after pure decode alone; each witness refuses what it can see."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalharness.trace.chrome import Trace, read_trace
from evalharness.trace.gate import PureDecodeGate
from evalharness.trace.purity import Counters, judge
from tests.trace.build import DECODE, kernel, step, write


def test_the_gate_waits_for_the_last_stream_and_one_output_more() -> None:
    gate = PureDecodeGate(2, confirm=3)
    for _ in range(50):
        gate.outputs(0)
    assert gate.confirmed == 0, "one stream alone is not C streams"
    gate.outputs(1)
    assert gate.confirmed == 0
    for made in range(4):
        assert not gate.open
        gate.outputs(0)
        gate.outputs(1)
        assert gate.confirmed == made
    assert gate.open
    assert gate.made() == (54, 5)


def test_every_stream_has_to_make_the_outputs() -> None:
    gate = PureDecodeGate(2, confirm=2)
    gate.outputs(0)
    gate.outputs(1)
    gate.outputs(0, 100)
    assert not gate.open
    gate.outputs(1, 3)
    assert gate.open


def test_an_end_closes_the_gate_for_good() -> None:
    gate = PureDecodeGate(1, confirm=1)
    gate.outputs(0, 1)
    gate.outputs(0, 5)
    assert gate.open
    gate.ended(0)
    gate.outputs(0, 5)
    assert gate.broken and not gate.open and gate.confirmed == 0


@pytest.mark.parametrize(("concurrency", "confirm"), [(0, 1), (1, 0)])
def test_a_gate_of_nothing_is_refused(concurrency: int, confirm: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        PureDecodeGate(concurrency, confirm)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=60), st.integers(1, 4))
def test_the_gate_equals_its_definition(events: list[tuple[int, int]], confirm: int) -> None:
    """Replay by definition: outputs after the last first output, less one, if none has ended."""
    gate = PureDecodeGate(3, confirm)
    log: list[int] = []
    over: set[int] = set()
    for stream, kind in events:
        if kind == 4:
            gate.ended(stream)
            over.add(stream)
        else:
            gate.outputs(stream)
            log.append(stream)
        firsts = [log.index(one) for one in range(3)] if set(log) == {0, 1, 2} else None
        expected = 0
        if firsts is not None and not over:
            later = log[max(firsts) + 1 :]
            expected = max(0, min(later.count(one) for one in range(3)) - 1)
        assert gate.confirmed == expected
        assert gate.open == (expected >= confirm)


def trace(folder: Path, *names: str, cat: str = "user_annotation") -> Trace:
    events = [kernel("gemm", 0, 1), *(step(name, i, cat=cat) for i, name in enumerate(names))]
    return read_trace(write(folder / "t.json", events))


def test_annotations_alone_show_pure_decode(tmp_path: Path) -> None:
    found = judge([trace(tmp_path, DECODE, DECODE)], concurrency=16)
    assert (found.pure, found.witnesses, found.steps) == (True, ("annotations",), 2)
    assert found.step_kinds == (("0 in prefill, 16 in decode", 2),)


def test_roofline_annotations_are_read_too(tmp_path: Path) -> None:
    name = "execute_context_1(sq37sk37sqsq1369sqsk1369)_generation_15(sq15sk900sqsq15sqsk900)"
    found = judge([trace(tmp_path, name)], concurrency=16)
    assert found.pure is False
    assert "37 prompt tokens" in found.problems[0]


def test_annotations_of_the_card_stand_in_for_the_hosts(tmp_path: Path) -> None:
    found = judge([trace(tmp_path, DECODE, cat="gpu_user_annotation")], concurrency=16)
    assert (found.pure, found.steps) == (True, 1)


def test_another_concurrency_is_refused_and_an_empty_step_is_none(tmp_path: Path) -> None:
    empty = "execute_context_0(0)_generation_0(0)"
    assert judge([trace(tmp_path, DECODE, empty)], concurrency=16).pure is True
    fewer = "execute_context_0(0)_generation_15(15)"
    found = judge([trace(tmp_path, DECODE, fewer)], concurrency=16)
    assert found.pure is False
    assert "1 steps with 15 requests in decode, expected 16" in found.problems[0]
    assert judge([trace(tmp_path, DECODE, fewer)], concurrency=None).pure is True


def test_every_rank_has_to_be_pure(tmp_path: Path) -> None:
    other = tmp_path / "rank1"
    other.mkdir()
    prefill = trace(other, "execute_context_2(64)_generation_14(14)")
    assert judge([trace(tmp_path, DECODE), prefill], concurrency=16).pure is False
    bare = trace(other)
    assert judge([trace(tmp_path, DECODE), bare], concurrency=16).pure is None


QUIET = Counters(running=16, prompt_tokens=900)


@pytest.mark.parametrize(
    ("before", "after", "pure", "said"),
    [
        (QUIET, QUIET, True, ""),
        (QUIET, Counters(16, 937), False, "37 prompt tokens"),
        (Counters(17, 900), QUIET, False, "17 requests ran on the server before"),
        (QUIET, Counters(15, 900), False, "15 requests ran on the server after"),
        (Counters(None, None), Counters(None, None), None, ""),
        (Counters(16, None), Counters(16, None), None, ""),
    ],
)
def test_the_servers_counters(
    tmp_path: Path, before: Counters, after: Counters, pure: bool | None, said: str
) -> None:
    found = judge([trace(tmp_path)], concurrency=16, before=before, after=after)
    assert found.pure is pure
    assert said in " ".join(found.problems)


def test_counters_that_object_overrule_annotations(tmp_path: Path) -> None:
    found = judge([trace(tmp_path, DECODE)], concurrency=16, before=QUIET, after=Counters(16, 901))
    assert found.pure is False
