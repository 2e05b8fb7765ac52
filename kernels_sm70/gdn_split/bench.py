# SPDX-License-Identifier: Apache-2.0
"""Timing of the GDN split: alone, and inside the complete projection (both GEMMs and the split)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch

from kernels_sm70.bench.harness import Absent, Case, Runner, Target
from kernels_sm70.gdn_split import floor_bytes
from kernels_sm70.gdn_split import op as _op  # registers the operations

HIDDEN, QKV, WIDTH, HALVES = 2560, 2560, 4096, 24
ROUTES = _op.ROUTES


def _four_copies(qkvz: torch.Tensor, ba: torch.Tensor) -> tuple[torch.Tensor, ...]:
    half = HALVES // 2
    return (
        qkvz[:, :QKV].contiguous(),
        qkvz[:, QKV:].contiguous(),
        ba[:, :half].contiguous(),
        ba[:, half:].contiguous(),
    )


def _three_copies(qkvz: torch.Tensor, ba: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What stock vLLM does at M > 1: b and a made contiguous, z copied by the gated norm's
    reshape.
    """
    half = HALVES // 2
    return (qkvz[:, QKV:].reshape(-1, 128), ba[:, :half].contiguous(), ba[:, half:].contiguous())


def _split(qkvz: torch.Tensor, ba: torch.Tensor, *, with_qkv: bool) -> tuple[torch.Tensor, ...]:
    operation = (
        torch.ops.kernels_sm70.gdn_split if with_qkv else torch.ops.kernels_sm70.gdn_split_zba
    )
    outputs: tuple[torch.Tensor, ...] = operation(qkvz, ba, QKV)
    return outputs


WAYS: dict[str, Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "four copies (torch)": _four_copies,
    "three copies (stock)": _three_copies,
    "kernel, four outputs": partial(_split, with_qkv=True),
    "kernel, qkv a view": partial(_split, with_qkv=False),
}


def _prepare(
    device: torch.device, sets: int, *, rows: int, dtype: torch.dtype
) -> Mapping[str, Runner | Absent]:
    generator = torch.Generator(device=device).manual_seed(rows)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device, dtype=torch.float32).to(
            dtype
        )

    x = [random(rows, HIDDEN) for _ in range(sets)]
    w_qkvz = [random(WIDTH, HIDDEN) * HIDDEN**-0.5 for _ in range(sets)]
    w_ba = [random(HALVES, HIDDEN) * HIDDEN**-0.5 for _ in range(sets)]
    linear = torch.nn.functional.linear
    projected = [(linear(x[i], w_qkvz[i]), linear(x[i], w_ba[i])) for i in range(sets)]

    def whole(index: int, *, way: str) -> object:
        return WAYS[way](linear(x[index], w_qkvz[index]), linear(x[index], w_ba[index]))

    def alone(index: int, *, way: str) -> object:
        return WAYS[way](*projected[index])

    runners: dict[str, Runner | Absent] = {
        f"projection, {way}": partial(whole, way=way) for way in WAYS
    }
    runners |= {f"split alone, {way}": partial(alone, way=way) for way in WAYS}
    return runners


def _case(rows: int) -> Case:
    weights = 2 * HIDDEN * (WIDTH + HALVES)
    moved = weights + 2 * rows * (HIDDEN + 2 * (WIDTH + HALVES)) + floor_bytes(rows, with_qkv=False)
    return Case(
        operation="gdn_split",
        label=f"M{rows} fp16",
        bytes=moved,
        prepare=partial(_prepare, rows=rows, dtype=torch.float16),
        targets={
            "projection, kernel, four outputs": Target(
                min_speedup=1.11, baseline="projection, four copies (torch)"
            ),
            "projection, kernel, qkv a view": Target(
                min_speedup=1.0, baseline="projection, three copies (stock)"
            ),
        },
    )


CASES = tuple(_case(rows) for rows in (2, 4, 8, 16, 32, 64))
