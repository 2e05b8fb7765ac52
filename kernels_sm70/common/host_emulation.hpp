// SPDX-License-Identifier: Apache-2.0
// Runs device code on a CPU: each CUDA thread is a fiber, a block is a set of fibers, blocks run one after another.
//
// What it checks beyond arithmetic: shared memory starts as NaN bytes in every block; blocks and threads run in a chosen
// order (forward, reverse, shuffled), so a missing barrier gives different results; a barrier that not all threads reach
// is an error. The matrix instructions are implemented from the element maps of the PTX manual, not from mma.cuh.
#pragma once
#include <csetjmp>
#include <cmath>
#include <utility>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>
#include <ucontext.h>

#define KS_DEVICE inline
#define KS_SHARED(type, name, count)                     \
  static ::emu::SharedArray<type, (count)> name##_array; \
  type(&name)[(count)] = name##_array.elements[::emu::cluster_rank()]
#define KS_DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(::emu::dynamic_shared_of_block())
#define KS_ENTRY(name, threads, ArgsType, ...)                                                                   \
  extern "C" __attribute__((visibility("default"))) int name##_emulated(const ArgsType* args, const unsigned* grid, unsigned shared_bytes, unsigned cluster, int order) { \
    return ::emu::launch([args] { __VA_ARGS__(*args); }, grid, (threads), shared_bytes, cluster, order);                  \
  }                                                                                                              \
  extern "C" __attribute__((visibility("default"))) unsigned name##_args_bytes() { return static_cast<unsigned>(sizeof(ArgsType)); }

struct uint2 {
  unsigned x, y;
} __attribute__((aligned(8)));
struct uint4 {
  unsigned x, y, z, w;
} __attribute__((aligned(16)));

namespace emu {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

template <class To, class From>
inline To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast needs equal sizes");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline float fp16_to_float(unsigned short bits) { return static_cast<float>(bit_cast<_Float16>(bits)); }
inline unsigned short fp16_from_float(float value) {
  return bit_cast<unsigned short>(static_cast<_Float16>(value));
}

constexpr unsigned kClusterMax = 8;
struct Region {
  char* start;
  size_t bytes;  // of one block; the blocks of a cluster lie side by side
};
inline std::vector<Region> shared_regions;
inline std::vector<unsigned char> dynamic_shared;
inline unsigned dynamic_shared_bytes = 0;
unsigned cluster_rank();
inline unsigned char* dynamic_shared_of_block() { return dynamic_shared.data() + cluster_rank() * dynamic_shared_bytes; }
template <class T, size_t kCount>
struct SharedArray {
  alignas(16) T elements[kClusterMax][kCount];
  SharedArray() {
    std::memset(static_cast<void*>(elements), 0xff, sizeof elements);
    shared_regions.push_back({reinterpret_cast<char*>(elements), sizeof elements[0]});
  }
};

struct WarpState {
  int arrived = 0;
  unsigned generation = 0;
  unsigned long long slots[2][32];
};

// An asynchronous copy happens as late as it may: at the wait. Without the wait the target keeps its NaN bytes.
struct PendingCopy {
  void* target;
  const void* source;
  bool valid;
};

struct Fiber {
  std::vector<PendingCopy> copies;
  ucontext_t context;
  jmp_buf resume;
  std::unique_ptr<char[]> stack;
  bool started = false, done = false, at_block_barrier = false, at_warp_barrier = false, spinning = false;
  unsigned warp_generation = 0;
};

// The blocks of one cluster (one block without clusters): fiber index = rank * threads + thread.
struct Cluster {
  std::vector<Fiber> fibers;
  std::vector<WarpState> warps;
  jmp_buf scheduler;
  unsigned current = 0, threads = 0, ranks = 1, cluster_arrived = 0;
  unsigned arrived[kClusterMax];
  void (*run)(void*) = nullptr;
  void* body = nullptr;
};

inline Cluster block;
inline Index thread_index, block_index, block_dim, grid_dim;
inline unsigned cluster_rank() { return block.current / block.threads; }

inline void yield() {
  Fiber& fiber = block.fibers[block.current];
  if (!_setjmp(fiber.resume)) _longjmp(block.scheduler, 1);
}

inline void copy_async(void* target, const void* source, bool valid) {
  block.fibers[block.current].copies.push_back({target, source, valid});
}
inline void finish_copies() {
  std::vector<PendingCopy>& copies = block.fibers[block.current].copies;
  for (const PendingCopy& copy : copies) {
    if (copy.valid) std::memcpy(copy.target, copy.source, 16);
    else std::memset(copy.target, 0, 16);
  }
  copies.clear();
}

inline void block_barrier() {
  block.fibers[block.current].at_block_barrier = true;
  ++block.arrived[cluster_rank()];
  yield();
}

// All 32 lanes meet; returns the slot parity that holds this meeting's values. `last` runs once, when all have arrived.
template <class Last>
inline unsigned warp_meeting(unsigned long long value, Last last) {
  const unsigned lane = block.current & 31u;
  WarpState& warp = block.warps[block.current >> 5];
  const unsigned generation = warp.generation, parity = generation & 1u;
  warp.slots[parity][lane] = value;
  if (++warp.arrived == 32) {
    last(warp.slots[parity]);
    warp.arrived = 0;
    ++warp.generation;
    return parity;
  }
  Fiber& fiber = block.fibers[block.current];
  fiber.at_warp_barrier = true;
  fiber.warp_generation = generation;
  yield();
  return parity;
}

template <class T>
inline T exchange(T value, unsigned source_lane) {
  static_assert(sizeof(T) <= 8, "a lane exchanges up to 8 bytes");
  unsigned long long raw = 0;
  std::memcpy(&raw, &value, sizeof value);
  WarpState& warp = block.warps[block.current >> 5];
  const unsigned parity = warp_meeting(raw, [](unsigned long long*) {});
  T out;
  std::memcpy(&out, &warp.slots[parity][source_lane & 31u], sizeof out);
  return out;
}

inline void fiber_main() {
  block.run(block.body);
  block.fibers[block.current].done = true;
  _longjmp(block.scheduler, 1);
}

inline bool ready(const Fiber& fiber, unsigned index) {
  if (fiber.done || fiber.at_block_barrier) return false;
  return !fiber.at_warp_barrier || block.warps[index >> 5].generation != fiber.warp_generation;
}

inline void step(unsigned index) {
  Fiber& fiber = block.fibers[index];
  fiber.at_warp_barrier = false;
  block.current = index;
  thread_index.x = index % block.threads;
  block_index.x = block_index.x / block.ranks * block.ranks + index / block.threads;
  if (_setjmp(block.scheduler)) return;
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = 128 * 1024;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, fiber_main, 0);
  setcontext(&fiber.context);
}

inline std::vector<unsigned> ordering(unsigned count, int order, unsigned seed) {
  std::vector<unsigned> out(count);
  for (unsigned i = 0; i < count; ++i) out[i] = order == 1 ? count - 1 - i : i;
  if (order < 2) return out;
  unsigned long long state = 0x9e3779b97f4a7c15ull * (seed + static_cast<unsigned>(order)) + 1;
  for (unsigned i = count; i > 1; --i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(out[i - 1], out[(state >> 33) % i]);
  }
  return out;
}

inline void poison_shared() {
  for (const Region& region : shared_regions) std::memset(region.start, 0xff, region.bytes * kClusterMax);
  std::memset(dynamic_shared.data(), 0xff, dynamic_shared.size());
}

inline void release_barriers() {
  for (unsigned rank = 0; rank < block.ranks; ++rank) {
    if (block.arrived[rank] != block.threads) continue;
    for (unsigned i = 0; i < block.threads; ++i) block.fibers[rank * block.threads + i].at_block_barrier = false;
    block.arrived[rank] = 0;
  }
}

// 0: done; 1: some threads left the kernel while others wait at a barrier, or lanes of a warp never met.
inline int run_cluster(int order, unsigned seed) {
  const unsigned total = block.threads * block.ranks;
  poison_shared();
  for (Fiber& fiber : block.fibers) {
    fiber.started = fiber.done = fiber.at_block_barrier = fiber.at_warp_barrier = false;
    fiber.copies.clear();
  }
  for (WarpState& warp : block.warps) warp.arrived = 0;
  for (unsigned& arrived : block.arrived) arrived = 0;
  block.cluster_arrived = 0;
  const std::vector<unsigned> sequence = ordering(total, order, seed);
  unsigned idle_rounds = 0;
  for (;;) {
    bool progressed = false;
    unsigned finished = 0;
    for (unsigned index : sequence) {
      if (ready(block.fibers[index], index)) {
        block.fibers[index].spinning = false;
        step(index);
        progressed = progressed || !block.fibers[index].spinning;
      }
      finished += block.fibers[index].done;
    }
    if (finished == total) return 0;
    release_barriers();
    idle_rounds = progressed ? 0 : idle_rounds + 1;
    if (idle_rounds > 2) return 1;
  }
}

// order: 0 forward, 1 reverse, n >= 2 shuffled by seed n; the same for clusters and for the threads of each.
template <class Body>
inline int launch(Body body, const unsigned* grid, unsigned threads, unsigned shared_bytes, unsigned ranks, int order) {
  if (threads % 32u || ranks == 0 || ranks > kClusterMax || grid[0] % ranks) return 2;
  block.threads = threads;
  block.ranks = ranks;
  block.fibers.resize(threads * ranks);
  for (Fiber& fiber : block.fibers)
    if (!fiber.stack) fiber.stack.reset(new char[128 * 1024]);
  block.warps.resize(threads * ranks / 32u);
  block.run = [](void* raw) { (*static_cast<Body*>(raw))(); };
  block.body = &body;
  block.current = 0;
  dynamic_shared_bytes = (shared_bytes + 15u) / 16u * 16u;
  dynamic_shared.assign(dynamic_shared_bytes * ranks + 16, 0xff);
  block_dim = {threads, 1, 1};
  grid_dim = {grid[0], grid[1], grid[2]};
  const unsigned across = grid[0] / ranks;
  for (unsigned linear : ordering(across * grid[1] * grid[2], order, 0)) {
    block_index = {linear % across * ranks, (linear / across) % grid[1], linear / (across * grid[1])};
    const int status = run_cluster(order, linear + 1);
    if (status) return status;
  }
  return 0;
}

// ---- what a cluster shares ----
inline void spin() {
  block.fibers[block.current].spinning = true;
  yield();
}
inline void cluster_arrive() { ++block.cluster_arrived; }
inline void cluster_wait() {
  while (block.cluster_arrived < block.threads * block.ranks) spin();
}
// The same variable of another block of the cluster.
template <class T>
inline T* in_rank(T* mine, unsigned rank) {
  char* const address = reinterpret_cast<char*>(mine);
  for (const Region& region : shared_regions)
    if (address >= region.start && address < region.start + region.bytes * kClusterMax)
      return reinterpret_cast<T*>(region.start + rank * region.bytes + (address - region.start) % region.bytes);
  std::fprintf(stderr, "emulation: a push to an address outside the static shared memory\n");
  std::abort();
}
inline void push(float* slot, unsigned rank, float value, unsigned long long* inbox) {
  *in_rank(slot, rank) = value;
  *in_rank(inbox, rank) -= sizeof value;
}
inline void wait_inbox(const unsigned long long* inbox) {
  while (*const_cast<const volatile unsigned long long*>(inbox) != 0) spin();
}

// ---- matrix instructions, by the fragment tables of the PTX manual ("mma.m8n8k4" and "mma.m16n8k16") ----
struct MmaOperands {
  float* c;
  unsigned a[4], b[2];
};

template <class F>
inline void matrix_meeting(MmaOperands& mine, F compute) {
  warp_meeting(reinterpret_cast<unsigned long long>(&mine), [&](unsigned long long* slots) {
    MmaOperands* lanes[32];
    for (int i = 0; i < 32; ++i) lanes[i] = reinterpret_cast<MmaOperands*>(slots[i]);
    compute(lanes);
  });
}

inline unsigned short half_of(const unsigned* registers, int index) {
  return static_cast<unsigned short>(registers[index >> 1] >> (16 * (index & 1)));
}

inline void mma_m8n8k4(float* c, unsigned a0, unsigned a1, unsigned b0, unsigned b1) {
  MmaOperands mine{c, {a0, a1, 0, 0}, {b0, b1}};
  matrix_meeting(mine, [](MmaOperands** lanes) {
    for (int pair = 0; pair < 4; ++pair) {
      float a[8][4], b[4][8];
      for (int half = 0; half < 2; ++half)
        for (int i = 0; i < 4; ++i) {
          const MmaOperands& lane = *lanes[16 * half + 4 * pair + i];
          for (int k = 0; k < 4; ++k) {
            a[4 * half + i][k] = fp16_to_float(half_of(lane.a, k));  // .row: row = lane % 4 (+4), col = i
            b[k][4 * half + i] = fp16_to_float(half_of(lane.b, k));  // .col: row = i, col = lane % 4 (+4)
          }
        }
      for (int half = 0; half < 2; ++half)
        for (int i = 0; i < 4; ++i) {
          const int id = 16 * half + 4 * pair + i;
          for (int e = 0; e < 8; ++e) {
            const int row = (id & 1) + (e & 2) + 4 * half, col = (e & 4) + (id & 2) + (e & 1);
            float sum = lanes[id]->c[e];
            for (int k = 0; k < 4; ++k) sum += a[row][k] * b[k][col];
            lanes[id]->c[e] = sum;
          }
        }
    }
  });
}

template <class S>
inline void mma_m16n8k16(float* c, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  MmaOperands mine{c, {a0, a1, a2, a3}, {b0, b1}};
  matrix_meeting(mine, [](MmaOperands** lanes) {
    float a[16][16], b[16][8];
    for (int id = 0; id < 32; ++id) {
      const int group = id >> 2, in_group = id & 3;
      for (int i = 0; i < 8; ++i) {
        const int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
        const int col = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
        a[row][col] = S::to_float(half_of(lanes[id]->a, i));
      }
      for (int i = 0; i < 4; ++i)
        b[in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0)][group] = S::to_float(half_of(lanes[id]->b, i));
    }
    for (int id = 0; id < 32; ++id)
      for (int i = 0; i < 4; ++i) {
        const int row = (id >> 2) + (i >= 2 ? 8 : 0), col = (id & 3) * 2 + (i & 1);
        float sum = lanes[id]->c[i];
        for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][col];
        lanes[id]->c[i] = sum;
      }
  });
}

}  // namespace emu

// ---- the CUDA names device code uses ----
#define threadIdx (::emu::thread_index)
#define blockIdx (::emu::block_index)
#define blockDim (::emu::block_dim)
#define gridDim (::emu::grid_dim)
inline void __syncthreads() { ::emu::block_barrier(); }
inline void __syncwarp(unsigned = 0xffffffffu) { ::emu::exchange(0, 0); }
inline void __threadfence() {}
template <class T>
inline T __shfl_xor_sync(unsigned, T value, int mask) {
  return ::emu::exchange(value, (::emu::block.current & 31u) ^ static_cast<unsigned>(mask));
}
template <class T>
inline T __shfl_sync(unsigned, T value, int lane) {
  return ::emu::exchange(value, static_cast<unsigned>(lane));
}
template <class T>
inline T __shfl_up_sync(unsigned, T value, unsigned delta) {
  const unsigned lane = ::emu::block.current & 31u;
  return ::emu::exchange(value, lane >= delta ? lane - delta : lane);
}
template <class T>
inline T __shfl_down_sync(unsigned, T value, unsigned delta) {
  const unsigned lane = ::emu::block.current & 31u;
  return ::emu::exchange(value, lane + delta < 32u ? lane + delta : lane);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  ::emu::WarpState& warp = ::emu::block.warps[::emu::block.current >> 5];
  const unsigned parity = ::emu::warp_meeting(predicate != 0, [](unsigned long long*) {});
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<unsigned>(warp.slots[parity][i] & 1u) << i;
  return bits;
}
inline unsigned __match_any_sync(unsigned, int value) {
  ::emu::WarpState& warp = ::emu::block.warps[::emu::block.current >> 5];
  const unsigned long long mine = static_cast<unsigned>(value);
  const unsigned parity = ::emu::warp_meeting(mine, [](unsigned long long*) {});
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<unsigned>(warp.slots[parity][i] == mine) << i;
  return bits;
}
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
template <class T>
inline T atomicAdd(T* address, T value) {
  const T old = *address;
  *address = static_cast<T>(old + value);
  return old;
}
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned atomicOr(unsigned* address, unsigned value) {
  const unsigned old = *address;
  *address = old | value;
  return old;
}
using std::exp2f;
