# SPDX-License-Identifier: Apache-2.0
"""The CPU emulation itself: does it find the faults it is meant to find?"""

from __future__ import annotations

import ctypes

import pytest
import torch

from kernels_sm70 import emulate

HEAD = """
#include "../common/mma.cuh"
namespace ks { namespace probe {
struct Args { const void* a; const void* b; void* out; };
"""
TAIL = """
}}
KS_ENTRY(probe, 64, ks::probe::Args, ks::probe::body)
"""


class Args(ctypes.Structure):
    _fields_ = (("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("out", ctypes.c_void_p))


def run(
    body: str,
    *tensors: torch.Tensor,
    order: int = 0,
    volta: bool = False,
    grid: tuple[int, int, int] = (1, 1, 1),
) -> None:
    source = HEAD + "KS_DEVICE void body(const Args& args) {" + body + "}" + TAIL
    library = emulate.library("gdn_split", volta=volta, source_text=source)
    pointers = [tensor.data_ptr() for tensor in tensors]
    args = Args(*([0] * (3 - len(pointers)) + pointers) if len(pointers) == 1 else pointers)
    emulate.run(library, "probe", args, launch=emulate.Launch(grid, order=order))


REVERSE_THROUGH_SHARED = """
  KS_SHARED(float, values, 64);
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  BARRIER
  static_cast<float*>(args.out)[threadIdx.x] = values[63 - threadIdx.x];
"""


@pytest.mark.parametrize("order", [0, 1, 2, 9])
def test_a_barrier_orders_shared_memory(order: int) -> None:
    out = torch.zeros(64)
    run(REVERSE_THROUGH_SHARED.replace("BARRIER", "__syncthreads();"), out, order=order)
    assert torch.equal(out, torch.arange(63, -1, -1).float())


def test_a_missing_barrier_shows() -> None:
    """Unwritten shared memory is NaN, so every schedule gives a wrong result."""
    for order in (0, 1, 2):
        out = torch.zeros(64)
        run(REVERSE_THROUGH_SHARED.replace("BARRIER", ""), out, order=order)
        assert out.isnan().any()


def test_a_barrier_not_reached_by_all_is_an_error() -> None:
    with pytest.raises(emulate.EmulationError, match="barrier"):
        run("if (threadIdx.x < 40) __syncthreads();", torch.zeros(1))


def test_a_warp_that_never_meets_is_an_error() -> None:
    with pytest.raises(emulate.EmulationError, match="barrier"):
        run("if (threadIdx.x != 3) __syncwarp();", torch.zeros(1))


def test_shared_memory_does_not_survive_a_block() -> None:
    body = """
      KS_SHARED(float, kept, 1);
      if (threadIdx.x == 0) {
        static_cast<float*>(args.out)[blockIdx.x] = kept[0];
        kept[0] = 1.0f;
      }
    """
    out = torch.zeros(4)
    run(body, out, grid=(4, 1, 1))
    assert out.isnan().all()


def test_an_asynchronous_copy_lands_only_at_its_wait() -> None:
    body = """
      KS_SHARED(uint4, slot, 64);
      const uint4* source = static_cast<const uint4*>(args.a) + threadIdx.x;
      copy16_async(slot + threadIdx.x, source, threadIdx.x < 60);
      const uint4 early = slot[threadIdx.x];
      wait_async_copies();
      static_cast<uint4*>(args.b ? const_cast<void*>(args.b) : args.out)[threadIdx.x] = early;
      static_cast<uint4*>(args.out)[threadIdx.x] = slot[threadIdx.x];
    """
    source = torch.arange(256, dtype=torch.int32)
    early, late = torch.zeros(256, dtype=torch.int32), torch.zeros(256, dtype=torch.int32)
    run(body, source, early, late)
    assert (early == -1).all()
    assert torch.equal(late[:240], source[:240])
    assert (late[240:] == 0).all()


def test_warp_functions() -> None:
    body = """
      const int lane = static_cast<int>(threadIdx.x & 31u);
      int* out = static_cast<int*>(args.out) + 6 * threadIdx.x;
      out[0] = __shfl_xor_sync(0xffffffffu, lane, 5);
      out[1] = __shfl_sync(0xffffffffu, lane, 7);
      out[2] = __shfl_up_sync(0xffffffffu, lane, 3);
      out[3] = __shfl_down_sync(0xffffffffu, lane, 3);
      out[4] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 3 == 0));
      out[5] = static_cast<int>(warp_sum(static_cast<float>(lane)));
    """
    out = torch.zeros(64, 6, dtype=torch.int32)
    run(body, out, order=2)
    lanes = torch.arange(64) % 32
    ballot = sum(1 << i for i in range(0, 32, 3))
    wanted = torch.stack(
        (
            lanes ^ 5,
            torch.full((64,), 7),
            torch.where(lanes >= 3, lanes - 3, lanes),
            torch.where(lanes < 29, lanes + 3, lanes),
            torch.full((64,), ballot),
            torch.full((64,), 496),
        ),
        1,
    )
    assert torch.equal(out.long(), wanted)


ATOM = """
  Accumulator acc;
  clear(acc);
  const Payload* w = static_cast<const Payload*>(args.a);
  const Payload* x = static_cast<const Payload*>(args.b);
  const int k = 8 * fragment_chunk();
  const Payload* row = w + fragment_row() * 32 + k;
  const uint4 token = load16(x + fragment_row() * 32 + k);
  multiply<S_PLACEHOLDER>(acc, load16(row), load16(row + 8 * 32), token);
  reduce(acc);
  if (threadIdx.x < 32)
    for_each_element(acc, [&](int row, int token, float v) {
      static_cast<float*>(args.out)[row * 8 + token] += v;
    });
"""


@pytest.mark.parametrize(
    ("dtype", "storage", "volta"),
    [
        (torch.float16, "Fp16", False),
        (torch.float16, "Fp16", True),
        (torch.bfloat16, "Bf16", False),
    ],
)
def test_the_matrix_atom_is_a_product(dtype: torch.dtype, storage: str, volta: bool) -> None:
    """16 x 32 times 32 x 8, each element handed out once (it is added, so twice would show)."""
    generator = torch.Generator().manual_seed(3)
    w = torch.randint(-8, 9, (16, 32), generator=generator).to(dtype)
    x = torch.randint(-8, 9, (8, 32), generator=generator).to(dtype)
    out = torch.zeros(16, 8)
    run(ATOM.replace("S_PLACEHOLDER", storage), w, x, out, volta=volta)
    assert torch.equal(out, w.float() @ x.float().T)  # small integers: exact in any order


@pytest.mark.parametrize(("storage", "dtype"), [("Fp16", torch.float16), ("Bf16", torch.bfloat16)])
def test_storage_conversions_are_nearest_even(storage: str, dtype: torch.dtype) -> None:
    """Every payload to float, and random floats (ties and subnormals among them) to payloads."""
    body = f"""
      for (int i = threadIdx.x; i < 65536; i += 64) {{
        const Payload bits = static_cast<Payload>(i);
        static_cast<float*>(args.out)[i] = {storage}::to_float(bits);
        static_cast<Payload*>(const_cast<void*>(args.b))[i] =
            {storage}::from_float(static_cast<const float*>(args.a)[i]);
      }}
    """
    generator = torch.Generator().manual_seed(1)
    payloads = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
    noise = torch.randint(0, 3, (65536,), generator=generator).float() / 2
    following = torch.roll(payloads, -1).float()
    floats = payloads.float() + noise * (following - payloads.float())
    floats = torch.where(floats.isfinite(), floats, torch.randn(65536, generator=generator))
    narrowed, widened = torch.zeros(65536, dtype=torch.int16), torch.zeros(65536)
    run(body, floats, narrowed, widened)
    same = (widened == payloads.float()) | (widened.isnan() & payloads.isnan())
    assert same.all()
    assert torch.equal(narrowed.view(dtype), floats.to(dtype))


def test_a_mirror_of_the_wrong_size_is_refused() -> None:
    class Short(ctypes.Structure):
        _fields_ = (("a", ctypes.c_void_p),)

    library = emulate.library("gdn_split")
    with pytest.raises(emulate.EmulationError, match="make the fields agree"):
        emulate.run(library, "ks_gdn_split", Short(), launch=emulate.Launch((1, 1, 1)))


def test_a_write_outside_a_tensor_is_found() -> None:
    arena = emulate.Arena()
    out = arena.empty(64, dtype=torch.float32)
    run("static_cast<float*>(args.out)[threadIdx.x + 1] = 1.0f;", out)
    with pytest.raises(emulate.EmulationError, match="4 bytes outside"):
        arena.check()


def test_errors_of_the_compiler_are_shown() -> None:
    with pytest.raises(emulate.EmulationError, match="not_declared"):
        run("not_declared();", torch.zeros(1))
