# SPDX-License-Identifier: Apache-2.0
"""The GDN split on the CPU: the device code itself, emulated; mutants; the operations."""

from __future__ import annotations

import pytest
import torch

from kernels_sm70 import counters, emulate
from kernels_sm70.contract import PACKAGE_ROOT, ContractError
from kernels_sm70.gdn_split import floor_bytes, launch, op, reference
from kernels_sm70.gdn_split.gpu import random_payloads
from kernels_sm70.gpu_checks import same_bits

CPU = torch.device("cpu")
QKV, WIDTH, HALVES = 2560, 4096, 24


def emulated(
    qkvz: torch.Tensor,
    ba: torch.Tensor,
    *,
    with_qkv: bool = True,
    order: int = emulate.FORWARD,
    source_text: str | None = None,
    qkv_width: int = QKV,
) -> tuple[torch.Tensor | None, ...]:
    """(qkv or None, z, b, a) written by the emulated kernel over poison."""
    launch.check(qkvz, ba, qkv_width)
    widths = (qkv_width, qkvz.shape[1] - qkv_width, ba.shape[1] // 2, ba.shape[1] // 2)
    arena = emulate.Arena()
    outputs = [arena.empty(qkvz.shape[0], n, dtype=qkvz.dtype) for n in widths]
    given = (outputs[0] if with_qkv else None, *outputs[1:])
    args, geometry = launch.plan(qkvz, ba, given, hits=0)
    library = emulate.library("gdn_split", source_text=source_text)
    emulate.run(library, "ks_gdn_split", args, launch=emulate.Launch(geometry.grid, order=order))
    arena.check()
    return given


def matches(found: tuple[torch.Tensor | None, ...], qkvz: torch.Tensor, ba: torch.Tensor) -> bool:
    wanted = reference.split(qkvz, ba, qkvz.shape[1] - found[1].shape[1])  # type: ignore[union-attr]
    pairs = zip(found, wanted, strict=True)
    return all(have is None or same_bits(have, want) for have, want in pairs)


@pytest.mark.parametrize("order", [emulate.FORWARD, emulate.REVERSE, emulate.SHUFFLED])
@pytest.mark.parametrize("pad", [0, 40])
@pytest.mark.parametrize("with_qkv", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 4, 8, 16, 17, 33])
def test_every_form_is_bit_equal(rows: int, with_qkv: bool, pad: int, order: int) -> None:
    qkvz = random_payloads(rows, WIDTH + pad, CPU, seed=rows)[:, :WIDTH]
    ba = random_payloads(rows, HALVES + pad, CPU, seed=rows + 1)[:, :HALVES]
    assert matches(emulated(qkvz, ba, with_qkv=with_qkv, order=order), qkvz, ba)


def test_every_payload_through_every_store() -> None:
    """A geometry whose four outputs hold 65,536 elements each: every payload, NaNs included."""
    payloads = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(256, 256)
    qkvz = torch.cat((payloads, payloads.flip(0)), 1).view(torch.float16)
    ba = torch.cat((payloads.flip(1), payloads.T), 1).contiguous().view(torch.float16)
    found = emulated(qkvz, ba, qkv_width=256)
    assert matches(found, qkvz, ba)
    for output in found:
        assert output is not None
        assert output.view(torch.int16).unique().numel() == 65536


def test_unsharded_geometry() -> None:
    qkvz, ba = random_payloads(3, 16384, CPU, seed=1), random_payloads(3, 96, CPU, seed=2)
    assert matches(emulated(qkvz, ba, qkv_width=10240), qkvz, ba)


MUTANTS = {
    "z stored at the wrong row stride": (
        "row * args.z_vectors + vector - args.qkv_vectors",
        "row * args.qkv_vectors + vector - args.qkv_vectors",
    ),
    "b and a swapped": (
        "thread < args.half_vectors ? args.b : args.a",
        "thread < args.half_vectors ? args.a : args.b",
    ),
    "input row stride ignored": ("row * args.qkvz_stride", "row * 4096"),
    "last vectors dropped": (
        "vector < args.qkv_vectors + args.z_vectors",
        "vector < args.qkv_vectors + args.z_vectors - 1",
    ),
    "payload goes through a number": (
        "const uint4 payload = load16(args.qkvz + row * args.qkvz_stride + 8ll * vector);",
        "uint4 payload = load16(args.qkvz + row * args.qkvz_stride + 8ll * vector); "
        "payload.x = pack<Fp16>(low_of<Fp16>(payload.x) + 0.0f, high_of<Fp16>(payload.x));",
    ),
    "half slot off by one": ("4 * thread);", "4 * (thread ? thread - 1 : 0));"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_fail(name: str) -> None:
    """The oracle is not blind: each damaged kernel is caught."""
    old, new = MUTANTS[name]
    text = (PACKAGE_ROOT / "gdn_split" / "kernel.cuh").read_text()
    assert text.count(old) >= 1, f"the mutant's target is gone: {old}"
    qkvz = random_payloads(16, WIDTH + 64, CPU, seed=3)[:, :WIDTH]
    qkvz[:, ::8] = -0.0
    ba = random_payloads(16, HALVES, CPU, seed=4)
    try:
        found = emulated(qkvz, ba, source_text=text.replace(old, new))
    except emulate.EmulationError:
        return  # wrote outside its outputs
    assert not matches(found, qkvz, ba)


def test_operations_route_and_count() -> None:
    counters.reset()
    qkvz, ba = random_payloads(4, WIDTH, CPU, seed=5), random_payloads(4, HALVES, CPU, seed=6)
    wanted = reference.split(qkvz, ba, QKV)
    found = torch.ops.kernels_sm70.gdn_split(qkvz, ba, QKV)
    assert all(same_bits(a, b) for a, b in zip(found, wanted, strict=True))
    qkv, z, b, a = op.split_zba(qkvz, ba, QKV)
    assert qkv.data_ptr() == qkvz.data_ptr()
    assert all(same_bits(x, y) for x, y in zip((qkv, z, b, a), wanted, strict=True))
    op.split_zba(qkvz[:1], ba[:1], QKV)
    op.split_zba(qkvz.float(), ba.float(), QKV)
    counts = counters.snapshot()["cpu"]
    assert counts["gdn_split.hit"] == {"4": 2}
    assert counts["gdn_split.fallback.m"] == {"1": 1}
    assert counts["gdn_split.fallback.contract"] == {"4": 1}


@pytest.mark.parametrize("name", ["gdn_split", "gdn_split_zba"])
def test_fake_implementation_agrees(name: str) -> None:
    qkvz, ba = random_payloads(4, WIDTH, CPU, seed=5), random_payloads(4, HALVES, CPU, seed=6)
    operation = getattr(torch.ops.kernels_sm70, name).default
    torch.library.opcheck(operation, (qkvz, ba, QKV), test_utils=("test_schema", "test_faketensor"))


def _misaligned() -> torch.Tensor:
    return torch.zeros(4 * WIDTH + 8, dtype=torch.float16)[1 : 1 + 4 * WIDTH].view(4, WIDTH)


BAD = {
    "M = 0": (torch.zeros(0, WIDTH).half(), torch.zeros(0, HALVES).half(), QKV, "M: expected"),
    "dtype": (torch.zeros(4, WIDTH), torch.zeros(4, HALVES), QKV, "dtype"),
    "integers": (torch.zeros(4, WIDTH).short(), torch.zeros(4, HALVES).short(), QKV, "dtype"),
    "mixed dtypes": (torch.zeros(4, WIDTH).half(), torch.zeros(4, HALVES).bfloat16(), QKV, "ba"),
    "three dimensions": (
        torch.zeros(1, 4, WIDTH).half(),
        torch.zeros(4, HALVES).half(),
        QKV,
        "dim",
    ),
    "misaligned": (_misaligned(), torch.zeros(4, HALVES).half(), QKV, "address"),
    "row stride": (
        torch.zeros(4, WIDTH + 4).half()[:, :WIDTH],
        torch.zeros(4, HALVES).half(),
        QKV,
        "stride of dimension 0",
    ),
    "inner stride": (
        torch.zeros(4, 2 * WIDTH).half()[:, ::2],
        torch.zeros(4, HALVES).half(),
        QKV,
        "inner stride",
    ),
    "width": (torch.zeros(4, WIDTH).half(), torch.zeros(4, HALVES).half(), 2561, "width"),
    "ba width": (torch.zeros(4, WIDTH).half(), torch.zeros(4, 20).half(), QKV, "ba width"),
    "rows differ": (torch.zeros(4, WIDTH).half(), torch.zeros(5, HALVES).half(), QKV, "4 rows"),
}


@pytest.mark.parametrize("name", BAD)
def test_out_of_contract_is_refused(name: str) -> None:
    qkvz, ba, width, words = BAD[name]
    with pytest.raises(ContractError, match=words):
        torch.ops.kernels_sm70.gdn_split(qkvz, ba, width)
    assert op.route(qkvz, ba, width) is not None or qkvz.shape[0] > 1


def test_floor_bytes_count_each_payload_twice() -> None:
    assert floor_bytes(16, with_qkv=True) == 2 * 2 * 16 * (4096 + 24)
    assert floor_bytes(16, with_qkv=False) == 2 * 2 * 16 * (1536 + 24)
