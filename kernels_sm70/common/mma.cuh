// SPDX-License-Identifier: Apache-2.0
// The matrix atom for skinny products: 16 weight rows x 8 tokens x 32 of k, by one warp, operands straight from memory.
//
// A sum over k may be taken in any order, so both operands are permuted alike: a lane owns `chunk()` (which 8 of the 32
// k) of weight rows `row()` and `row() + 8` and of token `row()`. Each operand is then one 16-byte load of row-major
// memory; no shared memory and no ldmatrix (which Volta lacks).
//   Volta  : mma.m8n8k4; the four quad pairs of the warp take the four chunks, `reduce` adds them in the fixed order
//            ((c0 + c1) + (c2 + c3)).
//   Ampere+: two mma.m16n8k16; `reduce` does nothing.
#pragma once
#include "memory.cuh"

namespace ks {

KS_DEVICE int lane_id() { return static_cast<int>(threadIdx.x & 31u); }

#if KS_VOLTA_ATOM

struct Accumulator {
  float v[16];  // two 8x8 tiles of this lane's quad pair
};

KS_DEVICE int fragment_row() { return (lane_id() & 3) | ((lane_id() >> 4) << 2); }
KS_DEVICE int fragment_chunk() { return (lane_id() >> 2) & 3; }

KS_DEVICE void mma_m8n8k4(float* c, unsigned a0, unsigned a1, unsigned b0, unsigned b1) {
#if KS_ON_GPU
  asm volatile(
      "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9}, {%10,%11}, "
      "{%0,%1,%2,%3,%4,%5,%6,%7};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
      : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
#else
  emu::mma_m8n8k4(c, a0, a1, b0, b1);
#endif
}

template <class S>
KS_DEVICE void multiply(Accumulator& acc, const uint4& w_low, const uint4& w_high, const uint4& x) {
  static_assert(!S::kIsBf16, "Volta has no bf16 matrix instruction");
  mma_m8n8k4(acc.v, w_low.x, w_low.y, x.x, x.y);
  mma_m8n8k4(acc.v + 8, w_high.x, w_high.y, x.x, x.y);
  mma_m8n8k4(acc.v, w_low.z, w_low.w, x.z, x.w);
  mma_m8n8k4(acc.v + 8, w_high.z, w_high.w, x.z, x.w);
}

KS_DEVICE void reduce(Accumulator& acc) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    acc.v[i] += __shfl_xor_sync(0xffffffffu, acc.v[i], 4);
    acc.v[i] += __shfl_xor_sync(0xffffffffu, acc.v[i], 8);
  }
}

// After `reduce`: f(weight row 0..15, token 0..7, value), each element by exactly one lane.
template <class F>
KS_DEVICE void for_each_element(const Accumulator& acc, F f) {
  const int lane = lane_id();
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int e = i & 7;
    if (fragment_chunk() != (i >> 2)) continue;  // the quad pairs hold equal values: each hands out a quarter
    const int row = (lane & 1) + (e & 2) + ((lane >> 4) << 2) + ((i >> 3) << 3);
    const int token = (e & 4) + (lane & 2) + (e & 1);
    f(row, token, acc.v[i]);
  }
}

#else

struct Accumulator {
  float v[4];
};

KS_DEVICE int fragment_row() { return lane_id() >> 2; }
KS_DEVICE int fragment_chunk() { return lane_id() & 3; }

template <class S>
KS_DEVICE void mma_m16n8k16(float* c, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
#if KS_ON_GPU
  if (S::kIsBf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
#else
  emu::mma_m16n8k16<S>(c, a0, a1, a2, a3, b0, b1);
#endif
}

template <class S>
KS_DEVICE void multiply(Accumulator& acc, const uint4& w_low, const uint4& w_high, const uint4& x) {
  mma_m16n8k16<S>(acc.v, w_low.x, w_high.x, w_low.y, w_high.y, x.x, x.y);
  mma_m16n8k16<S>(acc.v, w_low.z, w_high.z, w_low.w, w_high.w, x.z, x.w);
}

KS_DEVICE void reduce(Accumulator&) {}

template <class F>
KS_DEVICE void for_each_element(const Accumulator& acc, F f) {
  const int row = fragment_row(), token = 2 * fragment_chunk();
  f(row, token, acc.v[0]);
  f(row, token + 1, acc.v[1]);
  f(row + 8, token, acc.v[2]);
  f(row + 8, token + 1, acc.v[3]);
}

#endif

// Sum over the four lanes that own the chunks of one row, the same value in each.
KS_DEVICE float sum_over_chunks(float value) {
  constexpr int kNear = KS_VOLTA_ATOM ? 4 : 1;
  value += __shfl_xor_sync(0xffffffffu, value, kNear);
  return value + __shfl_xor_sync(0xffffffffu, value, 2 * kNear);
}

KS_DEVICE void add(Accumulator& acc, const Accumulator& other) {
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(acc.v) / sizeof(float)); ++i) acc.v[i] += other.v[i];
}

KS_DEVICE void clear(Accumulator& acc) {
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(acc.v) / sizeof(float)); ++i) acc.v[i] = 0.0f;
}

}  // namespace ks
