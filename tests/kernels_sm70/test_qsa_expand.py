# SPDX-License-Identifier: Apache-2.0
"""QSA block index expansion on the CPU: the emulated device code against plain integers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_sm70 import counters, emulate
from kernels_sm70.contract import ContractError
from kernels_sm70.qsa_expand import BLOCKS, RATIO, WIDTH, floor_bytes, launch, op, reference
from kernels_sm70.qsa_expand.synthetic import Selection, positions_at, selection

POISON = -123456789


def emulated(
    selected: Selection,
    *,
    out: torch.Tensor | None = None,
    source_text: str | None = None,
    order: int = emulate.FORWARD,
    hits: int = 0,
    rejected: int = 0,
) -> torch.Tensor:
    """The expansion of poisoned output by the emulated device code."""
    if out is None:
        out = torch.empty(len(selected[0]), WIDTH, dtype=torch.int32)
    out.fill_(POISON)
    launch.check(*selected, out)
    spec, args, geometry = launch.plan(*selected, out, hits=hits, rejected=rejected)
    lib = emulate.library("qsa_expand", source_text=source_text)
    emulate.run(lib, spec.entry, args, launch=emulate.Launch(geometry.grid, order=order))
    return out


@pytest.mark.parametrize("wide", [False, True], ids=["int32", "int64"])
@pytest.mark.parametrize("residue", range(4))
def test_each_residue_apart(residue: int, wide: bool) -> None:
    positions = [4 * complete + residue - 1 for complete in (1, 2, 511, 512, 513, 2000)]
    found = emulated(selection(positions, wide=wide))
    assert torch.equal(found, reference.expand(*selection(positions, wide=wide)))
    for row, position in zip(found.tolist(), positions, strict=True):
        count = row[-1]
        assert row[count - residue : count] == list(range(position + 1 - residue, position + 1))
        assert set(row[count:-1]) <= {-1}


@pytest.mark.parametrize("rows", [*range(1, 18), 24, 65])
def test_every_width_with_mixed_residues(rows: int) -> None:
    selected = selection(positions_at(8192, rows), seed=rows)
    assert torch.equal(emulated(selected), reference.expand(*selected))


def test_padded_rows_and_rows_without_a_complete_block() -> None:
    selected = selection([-1, 0, 1, 2, 3, -1, 4])
    found = emulated(selected)
    assert torch.equal(found, reference.expand(*selected))
    assert found[:, -1].tolist() == [0, 1, 2, 3, 4, 0, 5]
    assert found[0, :-1].eq(-1).all()


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
@pytest.mark.parametrize("pad", [0, 1, 4])
def test_outputs_may_be_strided_and_unaligned(offset: int, pad: int) -> None:
    selected = selection(positions_at(8192, 3))
    wide = torch.full((3, WIDTH + pad + offset + 4), 77, dtype=torch.int32)
    out = wide[:, offset : offset + WIDTH]
    assert torch.equal(emulated(selected, out=out), reference.expand(*selected))
    assert wide[:, :offset].eq(77).all()
    assert wide[:, offset + WIDTH :].eq(77).all()


def test_blocks_may_be_strided() -> None:
    blocks, positions, visible = selection(positions_at(8192, 3))
    wide = torch.full((3, BLOCKS + 7), -5, dtype=torch.int32)
    wide[:, :BLOCKS] = blocks
    expected = reference.expand(blocks, positions, visible)
    assert torch.equal(emulated((wide[:, :BLOCKS], positions, visible)), expected)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-3, 2**33), st.integers(-4, 600), st.integers(-5, 2**31 - 1), st.booleans()
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_integers(rows: list[tuple[int, int, int, bool]]) -> None:
    blocks = torch.stack(
        [
            (torch.arange(BLOCKS) * (7 if up else -3) + start).clamp(-(2**31), 2**31 - 1).int()
            for _, _, start, up in rows
        ]
    )
    selected = (
        blocks,
        torch.tensor([position for position, *_ in rows]),
        torch.tensor([visible for _, visible, *_ in rows], dtype=torch.int32),
    )
    assert torch.equal(emulated(selected), reference.expand(*selected))


def test_positions_beyond_int32_are_empty_and_counted() -> None:
    blocks, _, visible = selection([100, 200, 300])
    positions = torch.tensor([2**31 - 2, 2**31 - 1, 2**40])
    row = torch.zeros(counters.COLUMNS, dtype=torch.int64)
    found = emulated((blocks, positions, visible), rejected=row.data_ptr())
    assert found[:, -1].tolist() == [4 * 25 + 3, 0, 0]
    assert row[0] == 2


def test_the_order_of_blocks_and_threads_changes_nothing() -> None:
    selected = selection(positions_at(8192, 4))
    runs = [emulated(selected, order=order) for order in (0, 1, 2, 9)]
    assert all(torch.equal(run, runs[0]) for run in runs)


MUTATIONS = {
    "always three tail tokens": ("i < row.tail ?", "i < 3 ?"),
    "no tail": ("i < row.tail ?", "i < 0 ?"),
    "the first row's tail for all": ("position_of(args, m)", "position_of(args, 0)"),
    "tail one token late": ("row.tail_start + i", "row.tail_start + i + 1"),
    "swapped index in a block": ("4 * block + i", "4 * block + (i ^ 1)"),
    "swapped neighbouring blocks": (
        "m * args.blocks_stride + v]",
        "m * args.blocks_stride + (v ^ 1)]",
    ),
    "count without the tail": ("4 * row.complete + row.tail;", "4 * row.complete;"),
    "one block short": ("if (v < row.complete)", "if (v + 1 < row.complete)"),
    "wide positions read as narrow": ("args.wide_positions ?", "false ?"),
}


@pytest.mark.slow  # compiles a mutated source
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutated_device_code_fails_the_oracle(mutation: str) -> None:
    selected = selection([*positions_at(8192, 8), -1, 5])
    text = emulate.mutated("qsa_expand", *MUTATIONS[mutation])
    assert not torch.equal(emulated(selected, source_text=text), reference.expand(*selected))


REFUSALS: dict[
    str,
    Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]],
] = {
    "no rows": lambda b, p, v, o: (b[:0], p[:0], v[:0], o[:0]),
    "blocks of int64": lambda b, p, v, o: (b.long(), p, v, o),
    "blocks of another width": lambda b, p, v, o: (b[:, :-1].contiguous(), p, v, o),
    "blocks transposed": lambda b, p, v, o: (b.T.contiguous().T, p, v, o),
    "positions of float": lambda b, p, v, o: (b, p.float(), v, o),
    "positions strided": lambda b, p, v, o: (b, p.repeat_interleave(2)[::2], v, o),
    "visible of another batch": lambda b, p, v, o: (b, p, v[:-1], o),
    "out of another width": lambda b, p, v, o: (b, p, v, o[:, :-1].contiguous()),
    "out of another device": lambda b, p, v, o: (b, p, v, o.to("meta")),
    "out rows overlap": lambda b, p, v, o: (b, p, v, o[:1].expand(len(b), WIDTH)),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_out_of_contract_calls_are_refused_and_fall_back_counted(name: str) -> None:
    selected = selection(positions_at(8192, 3))
    bad = REFUSALS[name](*selected, torch.empty(3, WIDTH, dtype=torch.int32))
    with pytest.raises(ContractError, match="expected"):
        launch.check(*bad)
    counters.reset()
    called: list[tuple[object, ...]] = []
    op.expand_or(lambda *args: called.append(args), *bad[:3], RATIO, RATIO * BLOCKS, bad[3])
    assert len(called) == 1
    rows = str(len(bad[0]))
    assert counters.snapshot()["cpu"]["qsa_expand.fallback.contract"] == {rows: 1}


def test_another_geometry_falls_back_counted() -> None:
    selected = selection(positions_at(8192, 3))
    counters.reset()
    called: list[tuple[object, ...]] = []
    out = torch.empty(3, WIDTH, dtype=torch.int32)
    op.expand_or(lambda *args: called.append(args), *selected, 8, RATIO * BLOCKS, out)
    assert len(called) == 1
    assert counters.snapshot()["cpu"]["qsa_expand.fallback.geometry"] == {"3": 1}


def test_operation_writes_in_place_and_counts() -> None:
    selected = selection(positions_at(8192, 5))
    out = torch.full((5, WIDTH), POISON, dtype=torch.int32)
    counters.reset()
    op.expand_or(
        lambda *_: pytest.fail("must not fall back"), *selected, RATIO, RATIO * BLOCKS, out
    )
    assert torch.equal(out, emulated(selected))
    assert counters.snapshot()["cpu"]["qsa_expand.hit"] == {"5": 1}


def test_device_counts_its_hits_by_width() -> None:
    row = torch.zeros(counters.COLUMNS, dtype=torch.int64)
    emulated(selection(positions_at(8192, 5)), hits=row.data_ptr())
    assert row[5] == 1
    assert row.sum() == 1


def test_floor() -> None:
    assert floor_bytes(1) == 4 * 512 + 4 * 2052 + 12
