// SPDX-License-Identifier: Apache-2.0
// Grouping of MoE routes: routes of one expert, in route order, packed <= 8 to a group. Integer work only.
//
// Contract
//   topk_ids  int32 [M, top_k], row-major; route r = token * top_k + slot. An id outside [0, experts) is dropped and
//             counted in the header; it contributes nothing to the output.
//   plan      int32 [8 + 12 * capacity], 16-byte aligned. Header: groups, routes placed, routes dropped, 0...
//             Group g, at 8 + 12 g: expert, count (1..8), rank of its first route among the expert's, 0, then its
//             routes ascending (unused places -1).
//   order     groups ascend by their first route. No atomics: the plan is a function of the ids alone.
//   limits    1 <= M * top_k <= kMaxRoutes, experts <= kMaxExperts; capacity = M * top_k (every route may want its own
//             expert).
#pragma once
#include "../common/mma.cuh"

namespace ks {
namespace moe {

constexpr int kGroupRoutes = 8;  // the token side of the matrix atom
constexpr int kPlanHeader = 8;
constexpr int kPlanGroup = 12;
constexpr int kMaxRoutes = 1024;
constexpr int kMaxExperts = 1024;
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

// Plans by one warp: 32 routes at a time, equal ids found by a match, running counts an expert in shared memory. Cost
// is linear in the routes, so a W13 block may afford to plan for itself.
template <int kThreads>
struct Planner {
  // Shared: `ids` (routes rounded up to 32), `state` (kMaxExperts), `total` (2). Finds group `wanted` into `group_out`
  // (shared, kPlanGroup), or writes every group and the header to `plan` when it is not null.
  // Returns the number of groups. Whole block, all threads.
  KS_DEVICE static int run(const int* topk_ids, int routes, int experts, int* ids, int* state, int* total, int wanted,
                           int* group_out, int* plan) {
    const int thread = static_cast<int>(threadIdx.x), padded = (routes + 31) & ~31;
    for (int e = thread; e < experts; e += kThreads) state[e] = 0;
    for (int r = thread; r < padded; r += kThreads) {
      const int id = r < routes ? topk_ids[r] : -1;
      ids[r] = id >= 0 && id < experts ? id : -1;
    }
    __syncthreads();
    if (thread < 32) scan(padded, ids, state, total, wanted, group_out, plan);
    __syncthreads();
    const int groups = total[0];
    if (plan != nullptr) {
      for (int g = thread; g < groups; g += kThreads) finish(plan + kPlanHeader + kPlanGroup * g, state);
      if (thread < kPlanHeader) plan[thread] = thread == 0 ? groups : thread == 1 ? total[1]
                                             : thread == 2 ? routes - total[1] : 0;
    } else if (thread == 0 && wanted < groups) {
      finish(group_out, state);
    }
    __syncthreads();
    return groups;
  }

 private:
  KS_DEVICE static void scan(int padded, const int* ids, int* state, int* total, int wanted, int* group_out,
                             int* plan) {
    const int lane = lane_id();
    const unsigned below = (1u << lane) - 1u;
    int groups = 0, placed = 0;
    for (int first = 0; first < padded; first += 32) {
      const int id = ids[first + lane];
      const bool valid = id >= 0;
      const unsigned peers = __match_any_sync(0xffffffffu, id);
      const int seen = valid ? state[id] : 0;  // open group << 16 | routes so far
      const int base = seen & 0xffff, rank = base + __popc(peers & below);
      const bool leads = valid && rank % kGroupRoutes == 0;
      const unsigned leaders = __ballot_sync(0xffffffffu, leads);
      int group = groups + __popc(leaders & below);
      // A route's leader is `skip` peers into this step, or opened its group in an earlier one.
      const int skip = (rank - rank % kGroupRoutes) - base;
      unsigned ahead = peers;
      for (int i = 0; valid && i < skip; ++i) ahead &= ahead - 1u;
      const int leader_group = __shfl_sync(0xffffffffu, group, valid && skip >= 0 ? __ffs(static_cast<int>(ahead)) - 1 : lane);
      if (!leads) group = skip >= 0 ? leader_group : seen >> 16;
      groups += __popc(leaders);
      placed += __popc(__ballot_sync(0xffffffffu, valid));
      __syncwarp();
      if (valid && (peers >> lane) == 1u) state[id] = (group << 16) | (rank + 1);
      __syncwarp();
      if (valid && group == wanted) put(group_out, id, rank, first + lane);
      if (valid && plan != nullptr) put(plan + kPlanHeader + kPlanGroup * group, id, rank, first + lane);
    }
    if (lane == 0) {
      total[0] = groups;
      total[1] = placed;
    }
  }

  KS_DEVICE static void put(int* group, int expert, int rank, int route) {
    const int place = rank % kGroupRoutes;
    if (place == 0) {
      group[0] = expert;
      group[2] = rank;
    }
    group[4 + place] = route;
  }

  // With all routes counted: the group's count, and -1 in its unused places.
  KS_DEVICE static void finish(int* group, const int* state) {
    const int left = (state[group[0]] & 0xffff) - group[2];
    const int count = left < kGroupRoutes ? left : kGroupRoutes;
    group[1] = count;
    group[3] = 0;
    for (int i = count; i < kGroupRoutes; ++i) group[4 + i] = -1;
  }
};

constexpr int kArrivals = 10;  // row tiles of W2
constexpr int kPlanThreads = 256;

KS_DEVICE void plan_body(const PlanArgs& args) {
  KS_SHARED(int, ids, kMaxRoutes);
  KS_SHARED(int, state, kMaxExperts);
  KS_SHARED(int, total, 2);
  count_route(args.hits, args.routes / args.top_k);
  wait_for_predecessor();
  release_successor();
  if (threadIdx.x < kArrivals) args.arrivals[threadIdx.x] = 0;
  Planner<kPlanThreads>::run(args.topk_ids, args.routes, args.experts, ids, state, total, -1, nullptr, args.plan);
}

}  // namespace moe
}  // namespace ks
