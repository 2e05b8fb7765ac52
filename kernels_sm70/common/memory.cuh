// SPDX-License-Identifier: Apache-2.0
// Vector moves, the dependent-launch fences, and the route counter.
#pragma once
#include "storage.cuh"

namespace ks {

// 16 bytes; the address must be 16-byte aligned.
KS_DEVICE uint4 load16(const void* address) { return *static_cast<const uint4*>(address); }
KS_DEVICE void store16(void* address, const uint4& v) { *static_cast<uint4*>(address) = v; }
KS_DEVICE uint2 load8(const void* address) { return *static_cast<const uint2*>(address); }
KS_DEVICE void store8(void* address, const uint2& v) { *static_cast<uint2*>(address) = v; }
KS_DEVICE uint4 zero16() {
  uint4 v;
  v.x = v.y = v.z = v.w = 0u;
  return v;
}

// Weights, read once and by nobody else: through the read-only path, not kept in L1. volatile keeps the loads where
// they are written (before `wait_for_predecessor`), which the compiler may otherwise sink to their first use.
KS_DEVICE uint4 load16_streamed(const void* address) {
#if KS_ON_GPU
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
#else
  return load16(address);
#endif
}

// Read a value another block of the same launch has written (after its fence): past L1, from L2.
KS_DEVICE float load_from_l2(const float* address) {
#if KS_ON_GPU
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(address) : "memory");
  return v;
#else
  return *address;
#endif
}

// Programmatic dependent launch (sm_90): everything before the wait may run while the previous kernel still does, so
// only data that no kernel of the stream writes (weights) may be read before it. No-ops elsewhere.
KS_DEVICE void wait_for_predecessor() {
#if KS_ON_GPU && KS_ARCH >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
KS_DEVICE void release_successor() {
#if KS_ON_GPU && KS_ARCH >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// One count for the route at this M, on the device so that graph replays count. `hits` is a row of 64-bit counters
// indexed by M (the last one holds every larger M), or null.
constexpr int kRouteCounterColumns = 66;  // M = 0..64, then everything larger
KS_DEVICE void count_route(unsigned long long* hits, int m) {
  if (hits == nullptr) return;
  if (blockIdx.x != 0 || blockIdx.y != 0 || blockIdx.z != 0 || threadIdx.x != 0) return;
  atomicAdd(hits + (m < kRouteCounterColumns - 1 ? m : kRouteCounterColumns - 1), 1ull);
}

// Sum over the 32 lanes, the same value in each; association fixed by the butterfly.
KS_DEVICE float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

}  // namespace ks
