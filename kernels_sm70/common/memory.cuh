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

// Weights, read once and by nobody else: through the read-only path, not kept in L1. ptxas sinks such a load to its first
// use, past `wait_for_predecessor`; where the early start matters use Staged below.
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

// Asynchronous copies of 16 bytes to shared memory; Volta has none.
#define KS_ASYNC_COPY (KS_ARCH >= 800)
#if KS_ASYNC_COPY
// Enqueue a copy, or a fill with zeros when not `valid`; the address must be readable memory of the tensor either way.
KS_DEVICE void copy16_async(void* shared, const void* address, bool valid) {
#if KS_ON_GPU
  const unsigned target = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(address), "r"(valid ? 16 : 0)
               : "memory");
#else
  emu::copy_async(shared, address, valid);
#endif
}
// Wait for this thread's own copies; other threads see them after a barrier.
KS_DEVICE void wait_async_copies() {
#if KS_ON_GPU
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  emu::finish_copies();
#endif
}
#else
KS_DEVICE void copy16_async(void* shared, const void* address, bool valid) {
  store16(shared, valid ? load16(address) : zero16());
}
KS_DEVICE void wait_async_copies() {}
#endif

// kCount 16-byte values that a thread fetches early and uses later. From Ampere on they wait in shared memory (the copy is
// in flight without holding registers, and cannot be sunk past a fence); on Volta in registers.
template <int kCount>
struct Staged {
#if KS_ASYNC_COPY
  static constexpr int kBytesPerThread = 16 * kCount;
  uint4* slots;
  // `region`: kBytesPerThread for each thread of the block; a warp's part of it is contiguous.
  KS_DEVICE explicit Staged(void* region)
      : slots(static_cast<uint4*>(region) + (threadIdx.x >> 5) * (32u * kCount) + (threadIdx.x & 31u)) {}
  KS_DEVICE void fetch(int i, const void* address, bool valid) { copy16_async(slots + 32 * i, address, valid); }
  KS_DEVICE uint4 get(int i) const { return slots[32 * i]; }
#else
  static constexpr int kBytesPerThread = 0;
  uint4 values[kCount];
  KS_DEVICE explicit Staged(void*) {}
  KS_DEVICE void fetch(int i, const void* address, bool valid) {
    values[i] = zero16();
    if (valid) values[i] = load16_streamed(address);
  }
  KS_DEVICE uint4 get(int i) const { return values[i]; }
#endif
};

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
