# SPDX-License-Identifier: Apache-2.0
"""QSA split-KV attention on the CPU: the emulated device code against fp64, and relocated KV
pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_sm70 import counters, emulate
from kernels_sm70.contract import ContractError
from kernels_sm70.gpu_checks import relative_l2, same_bits
from kernels_sm70.qsa_attention import floor_bytes, launch, op, reference, synthetic
from kernels_sm70.qsa_attention.launch import Inputs
from kernels_sm70.qsa_page4 import launch as page4
from kernels_sm70.qsa_page4 import reference as page4_reference
from kernels_sm70.qsa_page4 import synthetic as page4_inputs

BOUND = {torch.float16: 1e-4, torch.bfloat16: 8e-4}
ATOMS = [
    pytest.param(torch.float16, False, id="fp16"),
    pytest.param(torch.float16, True, id="fp16-volta-atom"),
    pytest.param(torch.bfloat16, False, id="bf16"),
]
POSITIONS = [-1, 0, 3, 30, 127, 128, 2050]


def pages_of(selected: page4.Inputs) -> torch.Tensor:
    return page4_reference.pages(
        *(getattr(selected, f.name) for f in dataclasses.fields(selected)[:5]),
        page_tokens=selected.page_tokens,
        physical_pages=selected.physical_pages,
    )


def made(
    positions: list[int], storage: torch.dtype, *, page_tokens: int = 16, seed: int = 0
) -> Inputs:
    selected, cache, q, gate = synthetic.state(
        positions, storage, page_tokens=page_tokens, seed=seed
    )
    return synthetic.inputs(cache, q, gate, pages_of(selected))


def emulated(
    inputs: Inputs,
    *,
    volta: bool = False,
    source_text: str | None = None,
    order: int = emulate.FORWARD,
    hits: int = 0,
) -> torch.Tensor:
    launch.check(inputs)
    buffers = launch.allocate(inputs)
    buffers.partial.fill_(float("nan"))
    buffers.statistics.fill_(float("nan"))
    buffers.out.view(torch.int16).fill_(0x7FFF)
    lib = emulate.library("qsa_attention", volta=volta, source_text=source_text)
    for spec, args, geometry in launch.steps(inputs, buffers, hits=hits):
        emulate.run(lib, spec.entry, args, launch=emulate.Launch(geometry.grid, order=order))
    return buffers.out


def error(out: torch.Tensor, inputs: Inputs) -> float:
    expected = reference.attention(
        inputs.q, inputs.k, inputs.v, inputs.gate, inputs.pages, storage=inputs.q.dtype
    )
    return relative_l2(out, expected)


@pytest.mark.parametrize("page_tokens", [4, 16, 784])
@pytest.mark.parametrize(("storage", "volta"), ATOMS)
def test_short_and_full_selections_meet_the_oracle(
    storage: torch.dtype, volta: bool, page_tokens: int
) -> None:
    inputs = made(POSITIONS, storage, page_tokens=page_tokens)
    out = emulated(inputs, volta=volta)
    assert error(out, inputs) <= BOUND[storage]
    assert not out[0].view(torch.int16).any()


@pytest.mark.parametrize("residue", range(4))
def test_each_residue_apart(residue: int) -> None:
    inputs = made([4 * n + residue - 1 for n in (1, 31, 32, 600)], torch.float16, seed=residue)
    assert error(emulated(inputs), inputs) <= BOUND[torch.float16]


@pytest.mark.parametrize("page_tokens", [16, 784])
def test_relocating_kv_pages_changes_no_bit(page_tokens: int) -> None:
    selected, cache, q, gate = synthetic.state(
        [2050, 900, 77], torch.float16, page_tokens=page_tokens
    )
    before = emulated(synthetic.inputs(cache, q, gate, pages_of(selected)))
    moved, to = page4_inputs.relocated(selected, seed=2)
    pages = pages_of(moved)
    assert not torch.equal(pages, pages_of(selected))
    after = emulated(synthetic.inputs(synthetic.moved_cache(cache, to), q, gate, pages))
    assert same_bits(before, after)


def test_a_list_in_physical_order_would_change_bits() -> None:
    # Why the logical order is worth having: the same tokens in the order of their addresses.
    selected, cache, q, gate = synthetic.state([2050], torch.float16)
    pages = pages_of(selected)
    by_address = pages.clone()
    by_address[0, :512] = pages[0, :512].sort().values
    outs = [emulated(synthetic.inputs(cache, q, gate, each)) for each in (pages, by_address)]
    assert relative_l2(outs[0], outs[1]) < 1e-3
    assert not same_bits(*outs)


def test_the_order_of_blocks_and_threads_changes_no_bit() -> None:
    inputs = made([2050, 900], torch.float16)
    runs = [emulated(inputs, order=order) for order in (0, 1, 2, 9)]
    assert all(same_bits(run, runs[0]) for run in runs)


def test_large_scores_do_not_overflow() -> None:
    inputs = made([700], torch.float16)
    loud = dataclasses.replace(inputs, q=inputs.q * 500)
    assert error(emulated(loud), loud) <= BOUND[torch.float16]


@pytest.mark.parametrize("payload", [float("nan"), float("inf")])
def test_a_bad_value_spoils_its_row_only(payload: float) -> None:
    inputs = made([300, 300], torch.float16)
    clean = emulated(inputs)
    page, offset = reference.tokens_of(inputs.pages[0], 16)
    inputs.k[page[5], offset[5], 9] = payload
    spoiled = emulated(inputs)
    assert not spoiled[0].isfinite().all()
    assert same_bits(spoiled[1], clean[1])


MUTATIONS = {
    "dropped rounding of o": ("round_to<S>(sum[i] / total)", "(sum[i] / total)"),
    "gate without its sigmoid": ("o * sigmoid(gate[i])", "o * gate[i]"),
    "scale dropped": ("stage[lane * 8 + h] * args.scale", "stage[lane * 8 + h]"),
    "wrong tail": ("(tail > 0 ? 4 - tail : 0)", "(tail > 0 ? 1 : 0)"),
    "swapped token index": (
        "(token & 3)) * args.token_stride",
        "(3 - (token & 3))) * args.token_stride",
    ),
    "one warp dropped": ("for (int w = 1; w < kWarps; ++w) top", "for (int w = 1; w < 2; ++w) top"),
    "sums not rescaled": (
        "fmaf(weight, args.statistics[at * 2 + 1], total)",
        "args.statistics[at * 2 + 1] + total",
    ),
    "last split dropped": ("(tokens + kSplitTokens - 1) / kSplitTokens", "tokens / kSplitTokens"),
    "head of another row": ("row * args.q_row_stride + head", "0 * args.q_row_stride + head"),
}
# The maximum of one warp only is still a right softmax unless it overflows; loud queries make it.
LOUD = {"one warp dropped"}


@pytest.mark.slow  # compiles a mutated source
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutated_device_code_fails_the_oracle(mutation: str) -> None:
    inputs = made([2050, 901, 77], torch.bfloat16, seed=4)
    if mutation in LOUD:
        inputs = dataclasses.replace(inputs, q=inputs.q * 500)
    assert error(emulated(inputs), inputs) <= BOUND[torch.bfloat16]
    text = emulate.mutated("qsa_attention", *MUTATIONS[mutation])
    out = emulated(inputs, source_text=text)
    assert not error(out, inputs) <= BOUND[torch.bfloat16]


def test_oracle_equals_transformers_eager_attention() -> None:
    modeling = pytest.importorskip(
        "transformers.models.qwen4_exp.modeling_qwen4_exp", reason="transformers lacks qwen4_exp"
    )

    class Module:
        num_key_value_groups = 6
        training = False

    inputs = made([300], torch.float16)
    page, offset = reference.tokens_of(inputs.pages[0], 16)
    keys, values = inputs.k[page, offset].double(), inputs.v[page, offset].double()
    out, _ = modeling.eager_attention_forward(
        Module(),
        inputs.q[0][None, :, None].double(),
        keys[None, None],
        values[None, None],
        None,
        256**-0.5,
    )
    # Its softmax is float32, so this is float32 agreement, before the gate and without rounding.
    expected = out[0, 0] * torch.sigmoid(inputs.gate[0].double())
    found = reference.attention(
        inputs.q.double(), inputs.k, inputs.v, inputs.gate, inputs.pages, storage=torch.float64
    )
    assert relative_l2(found[0], expected) < 1e-6


REFUSALS: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    "q of float32": lambda i: {"q": i.q.float()},
    "q of another head count": lambda i: {"q": i.q[:, :5].contiguous()},
    "no rows": lambda i: {"q": i.q[:0], "gate": i.gate[:0], "pages": i.pages[:0]},
    "k of another type": lambda i: {"k": i.k.bfloat16()},
    "k of another width": lambda i: {"k": i.k[..., :128]},
    "v of another layout": lambda i: {"v": i.v.contiguous()},
    "pages of 6 tokens": lambda i: {"k": i.k[:, :6], "v": i.v[:, :6]},
    "gate strided": lambda i: {"gate": torch.cat([i.gate, i.gate], 2)[..., :256]},
    "list of another width": lambda i: {"pages": i.pages[:, 1:].contiguous()},
    "list of int64": lambda i: {"pages": i.pages.long()},
    "list elsewhere": lambda i: {"pages": i.pages.to("meta")},
}


@pytest.mark.parametrize("name", REFUSALS)
def test_out_of_contract_calls_are_refused(name: str) -> None:
    inputs = made([300, 20], torch.float16)
    with pytest.raises(ContractError, match="expected"):
        launch.check(dataclasses.replace(inputs, **REFUSALS[name](inputs)))


def test_operation_equals_the_device_and_counts() -> None:
    inputs = made([300, 20], torch.float16)
    counters.reset()
    cache_k, cache_v = inputs.k[:, :, None], inputs.v[:, :, None]
    found = torch.ops.kernels_sm70.qsa_attention(
        inputs.q, cache_k, cache_v, inputs.gate, inputs.pages
    )
    row = torch.zeros(counters.COLUMNS, dtype=torch.int64)
    assert relative_l2(emulated(inputs, hits=row.data_ptr()), found) <= BOUND[torch.float16]
    assert counters.snapshot()["cpu"][op.HIT] == {"2": 1}
    assert row[2] == row.sum() == 1


def test_floor() -> None:
    assert round(floor_bytes(4) / 1e6, 1) == 8.4
