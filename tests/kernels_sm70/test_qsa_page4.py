# SPDX-License-Identifier: Apache-2.0
"""QSA page list on the CPU: the emulated device code against a sort, and under relocation of KV
pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_sm70 import counters, emulate
from kernels_sm70.contract import ContractError
from kernels_sm70.qsa_expand.synthetic import positions_at
from kernels_sm70.qsa_page4 import WIDTH, launch, op, reference, synthetic
from kernels_sm70.qsa_page4.launch import Inputs

POISON = -123456789


def emulated(
    inputs: Inputs, *, source_text: str | None = None, order: int = emulate.FORWARD, hits: int = 0
) -> torch.Tensor:
    out = torch.full((len(inputs.blocks), WIDTH), POISON, dtype=torch.int32)
    launch.check(inputs, out)
    args, geometry = launch.plan(inputs, out, hits=hits)
    lib = emulate.library("qsa_page4", source_text=source_text)
    emulate.run(
        lib,
        "ks_qsa_page4",
        args,
        launch=emulate.Launch(geometry.grid, geometry.dynamic_shared_bytes, order),
    )
    return out


def oracle(inputs: Inputs) -> torch.Tensor:
    return reference.pages(
        *(getattr(inputs, f.name) for f in dataclasses.fields(inputs)[:5]),
        page_tokens=inputs.page_tokens,
        physical_pages=inputs.physical_pages,
    )


@pytest.mark.parametrize("page_tokens", [4, 16, 64, 784])
@pytest.mark.parametrize("residue", range(4))
def test_each_residue_apart(residue: int, page_tokens: int) -> None:
    positions = [4 * complete + residue - 1 for complete in (1, 3, 511, 512, 513, 2000)]
    inputs = synthetic.inputs(positions, page_tokens=page_tokens, seed=residue)
    found = emulated(inputs)
    assert torch.equal(found, oracle(inputs))
    assert found[:, 514].eq(residue).all()


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 16, 17])
def test_every_width(rows: int) -> None:
    inputs = synthetic.inputs(positions_at(8192, rows), seed=rows)
    assert torch.equal(emulated(inputs), oracle(inputs))


def test_a_256k_context() -> None:
    inputs = synthetic.inputs(positions_at(262144, 2), seed=1)
    assert torch.equal(emulated(inputs), oracle(inputs))


def test_holes_padding_and_foreign_requests_are_rejected_and_counted() -> None:
    inputs = synthetic.inputs([8191, 4000, -1, 37, 2050, 2], seed=3)
    inputs.block_table[0, 5] = -1
    inputs.block_table[1, 0] = inputs.physical_pages
    inputs.block_table[4, 2050 // 16] = -1  # the open block's page
    inputs.requests[3] = 99
    inputs.requests[5] = -1
    found = emulated(inputs)
    assert torch.equal(found, oracle(inputs))
    assert found[2, 513:].tolist() == [0, 0, 0]
    assert found[3, 515] == 9 + 1
    assert found[5, 513:].tolist() == [0, 0, 1]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(-1, 3000), min_size=1, max_size=4),
    st.integers(0, 10_000),
    st.sampled_from([4, 8, 20, 16]),
)
def test_any_positions(positions: list[int], seed: int, page_tokens: int) -> None:
    inputs = synthetic.inputs(positions, page_tokens=page_tokens, seed=seed)
    assert torch.equal(emulated(inputs), oracle(inputs))


@pytest.mark.parametrize("page_tokens", [16, 784])
def test_relocating_kv_pages_keeps_order_and_number(page_tokens: int) -> None:
    before = synthetic.inputs(positions_at(8192, 5), page_tokens=page_tokens)
    after, to = synthetic.relocated(before, seed=4)
    old, new = emulated(before), emulated(after)
    per_page = page_tokens // 4
    for row in range(5):
        count = int(old[row, 513])
        pages = old[row, :count]
        expected = to[(pages // per_page).long()] * per_page + pages % per_page
        assert torch.equal(new[row, :count].long(), expected)
    assert torch.equal(old[:, 513:], new[:, 513:])


def test_the_selections_order_does_not_matter() -> None:
    inputs = synthetic.inputs([8191, 8191])
    inputs.blocks[1] = inputs.blocks[0].flip(0)
    inputs.block_table[1] = inputs.block_table[0]
    found = emulated(inputs)
    assert torch.equal(found[0], found[1])


def test_the_order_of_blocks_and_threads_changes_nothing() -> None:
    inputs = synthetic.inputs(positions_at(8192, 3))
    runs = [emulated(inputs, order=order) for order in (0, 1, 2, 9)]
    assert all(torch.equal(run, runs[0]) for run in runs)


MUTATIONS = {
    "ranked by physical page": ("1u << (block & 31)) - 1u", "1u << (page & 31)) - 1u"),
    "selection order kept": ("out[ranks[block >> 5] +", "out[thread + 0 *"),
    "page and offset swapped": (
        "physical * per_page + block % per_page",
        "physical + block % per_page * per_page",
    ),
    "tail page of the last complete block": (
        "static_cast<int>(next >> 2)) : -1",
        "static_cast<int>(next >> 2) - 1) : -1",
    ),
    "always a tail of three": ("tail ? tail_tokens : 0", "tail ? 3 : 0"),
    "tail not counted as a page": ("pages + (tail ? 1 : 0)", "pages"),
    "first row's request for all": ("args.requests[m]", "args.requests[0]"),
    "rejections not counted": ("rejected += rejects[w]", "rejected += 0"),
}


@pytest.mark.slow  # compiles a mutated source
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutated_device_code_fails_the_oracle(mutation: str) -> None:
    inputs = synthetic.inputs([8190, 8188, 4001, -1, 5])
    inputs.block_table[0, 3] = -1
    text = emulate.mutated("qsa_page4", *MUTATIONS[mutation])
    assert not torch.equal(emulated(inputs, source_text=text), oracle(inputs))


def test_a_missing_barrier_shows_under_another_order() -> None:
    text = emulate.mutated(
        "qsa_page4", "  __syncthreads();\n  if (page >= 0) atomicOr", "  if (page >= 0) atomicOr"
    )
    inputs = synthetic.inputs(positions_at(8192, 2))
    runs = [emulated(inputs, source_text=text, order=order) for order in (0, 1, 2)]
    assert not all(torch.equal(run, oracle(inputs)) for run in runs)


REFUSALS: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    "blocks of int64": lambda i: {"blocks": i.blocks.long()},
    "blocks of another width": lambda i: {"blocks": i.blocks[:, 1:].contiguous()},
    "blocks flat": lambda i: {"blocks": i.blocks.flatten()},
    "no rows": lambda i: {
        "blocks": i.blocks[:0],
        "positions": i.positions[:0],
        "visible": i.visible[:0],
        "requests": i.requests[:0],
    },
    "positions of float": lambda i: {"positions": i.positions.float()},
    "requests of int64": lambda i: {"requests": i.requests.long()},
    "visible of another batch": lambda i: {"visible": i.visible[1:]},
    "table of int64": lambda i: {"block_table": i.block_table.long()},
    "table transposed": lambda i: {"block_table": i.block_table.T.contiguous().T},
    "table elsewhere": lambda i: {"block_table": i.block_table.to("meta")},
    "a page of 6 tokens": lambda i: {"page_tokens": 6},
    "a page of no tokens": lambda i: {"page_tokens": 0},
    "no pages": lambda i: {"physical_pages": 0},
    "pages beyond int32": lambda i: {"physical_pages": 2**30},
    "a table beyond the bitmap": lambda i: {"page_tokens": 4096},
}


@pytest.mark.parametrize("name", REFUSALS)
def test_out_of_contract_calls_are_refused(name: str) -> None:
    inputs = synthetic.inputs(positions_at(8192, 3))
    bad = dataclasses.replace(inputs, **REFUSALS[name](inputs))
    out = torch.empty(len(bad.blocks), WIDTH, dtype=torch.int32)
    with pytest.raises(ContractError, match="expected"):
        launch.check(bad, out)


def test_operation_equals_the_device_and_counts() -> None:
    inputs = synthetic.inputs(positions_at(8192, 3))
    counters.reset()
    found = torch.ops.kernels_sm70.qsa_page4(
        *(getattr(inputs, f.name) for f in dataclasses.fields(inputs))
    )
    row = torch.zeros(counters.COLUMNS, dtype=torch.int64)
    assert torch.equal(found, emulated(inputs, hits=row.data_ptr()))
    assert counters.snapshot()["cpu"][op.HIT] == {"3": 1}
    assert row[3] == row.sum() == 1
