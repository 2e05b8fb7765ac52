"""Tokenised rows in flat arrays: nothing is lost, and batches hold every row once."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("numpy", reason="numpy is not installed")

from tools.demo_model.tokens import Rows, batches


def lists(seed: int, count: int) -> list[list[int]]:
    rng = Random(seed)
    return [[rng.randrange(49152) for _ in range(rng.randint(1, 40))] for _ in range(count)]


def test_rows_come_back_as_they_went_in() -> None:
    first, second = lists(1, 30), lists(2, 20)
    prompts = [len(ids) // 2 for ids in [*first, *second]]
    rows = Rows.joined([Rows.of(first, prompts[:30]), Rows.of(second, prompts[30:])])
    assert len(rows) == 50 and rows.prompts.tolist() == prompts
    assert [rows.tokens(i).tolist() for i in range(50)] == [*first, *second]
    assert rows.flat.nbytes == 2 * sum(map(len, [*first, *second]))


def test_a_token_too_large_for_two_bytes_is_refused() -> None:
    with pytest.raises(OverflowError, match="70000"):
        Rows.of([[1, 70000]], [1])


def test_batches_hold_every_row_once_within_the_limit() -> None:
    rows = Rows.of(lists(3, 200), [0] * 200)
    found = list(batches(rows, 256, Random(1)))
    assert sorted(index for batch in found for index in batch) == list(range(200))
    for batch in found:
        assert max(int(rows.lengths[i]) for i in batch) * len(batch) <= 256
    assert found != list(batches(rows, 256, Random(2)))
