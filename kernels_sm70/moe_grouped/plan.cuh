// SPDX-License-Identifier: Apache-2.0
// Grouping of MoE routes: routes of one expert, in route order, packed <= 8 to a group. Integer work only.
//
// Contract
//   topk_ids  int32 [M, top_k], row-major; route r = token * top_k + slot. An id outside [0, experts) is dropped and
//             counted in the header; it contributes nothing to the output.
//   plan      int32 [8 + 12 * capacity], 16-byte aligned. Header: groups, routes placed, routes dropped, 0...
//             Group g, at 8 + 12 g: expert, count (1..8), 0, 0, then its routes ascending (unused places -1).
//   order     groups ascend by their first route. No atomics: the plan is a function of the ids alone.
//   limits    1 <= M * top_k <= kMaxRoutes; capacity = M * top_k (every route may want its own expert).
#pragma once
#include "../common/mma.cuh"

namespace ks {
namespace moe {

constexpr int kGroupRoutes = 8;  // the token side of the matrix atom
constexpr int kPlanHeader = 8;
constexpr int kPlanGroup = 12;
constexpr int kMaxRoutes = 1024;
constexpr int kInlineRoutes = 256;  // up to here a W13 block may plan for itself

struct PlanArgs {
  const int* topk_ids;
  int* plan;
  int* arrivals;             // zeroed for the fused reduce of the same call
  unsigned long long* hits;  // route counter row, or null
  int routes;
  int top_k;
  int experts;
};

struct Group {
  int expert;
  int count;
};

// Whole block, all threads. Fills `routes_out` (shared, 8) with group `wanted`'s routes, or, when `wanted` < 0, writes
// every group to `plan`. Returns the number of groups. `ids` needs kCapacity ints, `leaders` kCapacity / 32.
template <int kThreads, int kCapacity>
struct Planner {
  static_assert(kCapacity % kThreads == 0, "each thread ranks the same number of routes");
  static constexpr int kPerThread = kCapacity / kThreads;

  KS_DEVICE static void put(int* group, int expert, int count, int place, int route) {
    if (place == 0) {
      group[0] = expert;
      group[1] = count;
      group[2] = group[3] = 0;
#pragma unroll
      for (int i = 0; i < kGroupRoutes; ++i)
        if (i >= count) group[4 + i] = -1;
    }
    group[4 + place] = route;
  }

  // group_out: shared, kPlanGroup ints, filled with group `wanted`; plan: every group (when write_all).
  KS_DEVICE static int run(const int* topk_ids, int routes, int experts, int* ids, unsigned* leaders, int wanted,
                           int* group_out, int* plan, bool write_all) {
    const int padded = (routes + 31) & ~31;
    for (int r = threadIdx.x; r < padded; r += kThreads) {
      const int id = r < routes ? topk_ids[r] : -1;
      ids[r] = id >= 0 && id < experts ? id : -1;
    }
    __syncthreads();
    int rank[kPerThread], leader[kPerThread], total[kPerThread];
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int r = threadIdx.x + i * kThreads;
      rank[i] = total[i] = leader[i] = 0;
      bool leads = false;
      if (r < routes && ids[r] >= 0) {
        const int mine = ids[r];
        for (int j = 0; j < padded; j += 4) {
          const uint4 quad = load16(ids + j);
          const int other[4] = {static_cast<int>(quad.x), static_cast<int>(quad.y), static_cast<int>(quad.z),
                                static_cast<int>(quad.w)};
#pragma unroll
          for (int t = 0; t < 4; ++t) {
            if (other[t] != mine) continue;
            if (j + t <= r) {
              if (total[i] % kGroupRoutes == 0) leader[i] = j + t;
              rank[i] = total[i];
            }
            ++total[i];
          }
        }
        leads = rank[i] % kGroupRoutes == 0;
      }
      const unsigned word = __ballot_sync(0xffffffffu, leads);
      if (lane_id() == 0 && r < padded) leaders[r >> 5] = word;
    }
    __syncthreads();
    int groups = 0;
    for (int w = 0; w < padded / 32; ++w) groups += __popc(leaders[w]);
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int r = threadIdx.x + i * kThreads;
      if (r >= routes || ids[r] < 0) continue;
      const int first = leader[i];
      int group = __popc(leaders[first >> 5] & ((1u << (first & 31)) - 1u));
      for (int w = 0; w < (first >> 5); ++w) group += __popc(leaders[w]);
      const int place = rank[i] % kGroupRoutes;
      const int left = total[i] - (rank[i] - place);
      const int count = left < kGroupRoutes ? left : kGroupRoutes;
      if (group == wanted) put(group_out, ids[r], count, place, r);
      if (write_all) put(plan + kPlanHeader + kPlanGroup * group, ids[r], count, place, r);
    }
    if (write_all && threadIdx.x == 0) {
      int dropped = 0;
      for (int r = 0; r < routes; ++r) dropped += ids[r] < 0;
      plan[0] = groups;
      plan[1] = routes - dropped;
      plan[2] = dropped;
      for (int i = 3; i < kPlanHeader; ++i) plan[i] = 0;
    }
    __syncthreads();
    return groups;
  }
};

constexpr int kArrivals = 10;  // row tiles of W2

KS_DEVICE void plan_body(const PlanArgs& args) {
  KS_SHARED(int, ids, kMaxRoutes);
  KS_SHARED(unsigned, leaders, kMaxRoutes / 32);
  count_route(args.hits, args.routes / args.top_k);
  wait_for_predecessor();
  release_successor();
  if (threadIdx.x < kArrivals) args.arrivals[threadIdx.x] = 0;
  Planner<256, kMaxRoutes>::run(args.topk_ids, args.routes, args.experts, ids, leaders, -1, nullptr, args.plan, true);
}

}  // namespace moe
}  // namespace ks
