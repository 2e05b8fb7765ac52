// SPDX-License-Identifier: Apache-2.0
// Grouped MoE for decode: plan, W13 with activation, W2, and the sum over a token's slots in slot order.
// Shapes, rounding points, summation order and floor bytes are in this folder's __init__.py.
#include "plan.cuh"
#include "weights.cuh"

namespace ks {
namespace moe {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kHidden = 2560;
constexpr int kPass = 160;    // intermediate columns a W2 step takes
constexpr int kW2Tiles = 4;   // 16-row tiles of a warp in W2
constexpr int kW2Rows = kWarps * kW2Tiles * 16;
static_assert(kArrivals * kW2Rows == kHidden, "one arrival count a row tile");

// One struct for the three kernels: they share the buffers.
struct Args {
  const Payload* x;           // [M, 2560], row stride x_stride elements, rows 16-byte aligned
  const void* w13;            // [E, 2 I, 2560] S, or [E, 2 I, 1280] bytes
  const void* w13_scale;      // [E, 2 I, 160] e4m3, or null
  const float* w13_global;    // [E, 2]: gate, up; or null
  const void* w2;             // [E, 2560, I] S, or [E, 2560, I / 2] bytes
  const void* w2_scale;       // [E, 2560, I / 16] e4m3, or null
  const float* w2_global;     // [E], or null
  const int* topk_ids;        // [M, top_k]
  const float* topk_weights;  // [M, top_k]
  int* plan;                  // see plan.cuh
  Payload* activation;        // [M * top_k, I]
  Payload* routed;            // [M * top_k, 2560], by route
  Payload* y;                 // [M, 2560]
  int* arrivals;              // [10], zeroed by whichever kernel plans; counted by the fused reduce
  unsigned long long* hits;
  long long x_stride;
  int routes;
  int top_k;
  int intermediate;  // I: a multiple of 160
  int experts;
};

template <class P>
KS_DEVICE float global_scale(const float* scales, int index) {
  return P::kScaled ? scales[index] * P::kPostScale : 1.0f;
}

// ---- W13: h = f(W13 x), a = f(silu(h_gate) * h_up) ----------------------------------------------------------------
// Block (tile group, group): kWarps / kSplitK tiles of 16 gate and 16 up rows; kSplitK warps share a tile's k range and
// their sums are added in warp order.
template <class S, class P, int kSplitK, bool kInlinePlan>
struct W13 {
  static constexpr int kTiles = kWarps / kSplitK;
  static constexpr int kRange = kHidden / kSplitK;
  static constexpr int kStepK = 4 * P::kLaneK;
  static constexpr int kSteps = kRange / kStepK;
  static constexpr int kVectors = P::kLaneK / 8;
  static_assert(kRange % kStepK == 0, "a warp's k range is whole steps");

  struct Step {
    typename P::Chunk gate_low, gate_high, up_low, up_high;
  };

  KS_DEVICE static Step load(const Args& args, size_t gate_row, size_t up_row, int k) {
    Step step;
    step.gate_low = P::template load<S>(args.w13, args.w13_scale, gate_row, kHidden, k);
    step.gate_high = P::template load<S>(args.w13, args.w13_scale, gate_row + 8, kHidden, k);
    step.up_low = P::template load<S>(args.w13, args.w13_scale, up_row, kHidden, k);
    step.up_high = P::template load<S>(args.w13, args.w13_scale, up_row + 8, kHidden, k);
    return step;
  }

  KS_DEVICE static void consume(const Step& step, const Payload* x, int k, Accumulator& gate, Accumulator& up) {
    uint4 tokens[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) tokens[v] = x == nullptr ? zero16() : P::arrange(load16(x + k + 8 * v));
    uint4 low[kVectors], high[kVectors];
    P::template expand<S>(step.gate_low, low);
    P::template expand<S>(step.gate_high, high);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) multiply<S>(gate, low[v], high[v], tokens[v]);
    P::template expand<S>(step.up_low, low);
    P::template expand<S>(step.up_high, high);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) multiply<S>(up, low[v], high[v], tokens[v]);
  }

  KS_DEVICE static void product(const Args& args, const int* group, int tile, int split, float* partial) {
    const int part = fragment_chunk(), token = fragment_row();
    const int k0 = split * kRange + part * P::kLaneK;
    const size_t expert_row = static_cast<size_t>(group[0]) * 2 * args.intermediate;
    const size_t gate_row = expert_row + tile * 16 + fragment_row();
    const size_t up_row = gate_row + args.intermediate;
    const Payload* x =
        token < group[1] ? args.x + (group[4 + token] / args.top_k) * args.x_stride : nullptr;

    Accumulator gate, up;
    clear(gate);
    clear(up);
    Step ring[P::kDepth];
#pragma unroll
    for (int s = 0; s < P::kDepth; ++s)
      if (s < kSteps) ring[s] = load(args, gate_row, up_row, k0 + s * kStepK);
    if (kSteps % P::kDepth == 0 && kSteps > P::kDepth) {
      for (int s0 = 0; s0 < kSteps - P::kDepth; s0 += P::kDepth) {
#pragma unroll
        for (int d = 0; d < P::kDepth; ++d) {
          consume(ring[d], x, k0 + (s0 + d) * kStepK, gate, up);
          ring[d] = load(args, gate_row, up_row, k0 + (s0 + d + P::kDepth) * kStepK);
        }
      }
#pragma unroll
      for (int d = 0; d < P::kDepth; ++d) consume(ring[d], x, k0 + (kSteps - P::kDepth + d) * kStepK, gate, up);
    } else {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        consume(ring[s % P::kDepth], x, k0 + s * kStepK, gate, up);
        if (s + P::kDepth < kSteps) ring[s % P::kDepth] = load(args, gate_row, up_row, k0 + (s + P::kDepth) * kStepK);
      }
    }
    reduce(gate);
    reduce(up);
    for_each_element(gate, [&](int row, int column, float value) { partial[column * 16 + row] = value; });
    for_each_element(up, [&](int row, int column, float value) { partial[128 + column * 16 + row] = value; });
  }

  KS_DEVICE static void finish(const Args& args, const int* group, const float* partials) {
    const float gate_scale = global_scale<P>(args.w13_global, 2 * group[0]);
    const float up_scale = global_scale<P>(args.w13_global, 2 * group[0] + 1);
    for (int element = threadIdx.x; element < kTiles * 128; element += kThreads) {
      const int local = element >> 7, row = element & 15, column = (element >> 4) & 7;
      const int tile = blockIdx.x * kTiles + local;
      if (column >= group[1] || tile * 16 >= args.intermediate) continue;
      const float* from = partials + local * kSplitK * 256 + column * 16 + row;
      float gate = from[0], up = from[128];
#pragma unroll
      for (int s = 1; s < kSplitK; ++s) {
        gate += from[s * 256];
        up += from[s * 256 + 128];
      }
      const float h_gate = round_to<S>(gate * gate_scale), h_up = round_to<S>(up * up_scale);
      const float silu = h_gate / (1.0f + expf(-h_gate));
      args.activation[static_cast<size_t>(group[4 + column]) * args.intermediate + tile * 16 + row] =
          S::from_float(silu * h_up);
    }
  }

  KS_DEVICE static void run(const Args& args) {
    KS_SHARED(float, partials, kWarps * 256);
    KS_SHARED(int, group, kPlanGroup);
    // A planning W13 has one more row of blocks, the first: its block 0 writes the plan for W2.
    const int wanted = static_cast<int>(blockIdx.y) - (kInlinePlan ? 1 : 0);
    int groups;
    if (kInlinePlan) {
      KS_SHARED(int, ids, kInlineRoutes);
      KS_SHARED(int, state, kMaxExperts);
      KS_SHARED(int, total, 2);
      if (wanted < 0 && blockIdx.x > 0) {
        wait_for_predecessor();
        return;
      }
      count_route(args.hits, args.routes / args.top_k);
      wait_for_predecessor();
      if (wanted < 0 && threadIdx.x < kArrivals) args.arrivals[threadIdx.x] = 0;
      groups = Planner<kThreads>::run(args.topk_ids, args.routes, args.experts, ids, state, total, wanted, group,
                                      wanted < 0 ? args.plan : nullptr);
      if (wanted < 0) return;
    } else {
      wait_for_predecessor();
      groups = args.plan[0];
      if (threadIdx.x < kPlanGroup) group[threadIdx.x] = args.plan[kPlanHeader + kPlanGroup * wanted + threadIdx.x];
      __syncthreads();
    }
    release_successor();
    if (wanted >= groups) return;
    const int warp = threadIdx.x >> 5, tile = blockIdx.x * kTiles + warp / kSplitK;
    if (tile * 16 < args.intermediate) product(args, group, tile, warp % kSplitK, partials + warp * 256);
    __syncthreads();
    finish(args, group, partials);
  }
};

// ---- the sum over slots: y = f(sum in slot order of w_slot * o_slot, by fma) ---------------------------------------
KS_DEVICE uint4 load16_from_l2(const void* address) {
#if KS_ON_GPU
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
#else
  return load16(address);
#endif
}

// Eight outputs of one token.
template <class S>
KS_DEVICE void reduce_vector(const Args& args, int token, int column) {
  float sum[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) sum[i] = 0.0f;
  const int first = token * args.top_k;
#pragma unroll 5
  for (int slot = 0; slot < args.top_k; ++slot) {
    const int id = args.topk_ids[first + slot];
    if (id < 0 || id >= args.experts) continue;
    const float weight = args.topk_weights[first + slot];
    float o[8];
    unpack8<S>(load16_from_l2(args.routed + static_cast<size_t>(first + slot) * kHidden + column), o);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] = fmaf(weight, o[i], sum[i]);
  }
  store16(args.y + static_cast<size_t>(token) * kHidden + column, pack8<S>(sum));
}

// Block (token, half a row of 1280 columns).
constexpr int kReduceThreads = 160;
template <class S>
KS_DEVICE void reduce_body(const Args& args) {
  wait_for_predecessor();
  release_successor();
  reduce_vector<S>(args, blockIdx.x, (blockIdx.y * kReduceThreads + threadIdx.x) * 8);
}

// ---- W2: o = f(W2 a) for each route; block (256 rows, group) -------------------------------------------------------
template <class S, class P, bool kFusedReduce>
struct W2 {
  KS_DEVICE static void tiles(const Args& args, const int* group, size_t row0, Accumulator (&acc)[kW2Tiles]) {
    const int part = fragment_chunk(), token = fragment_row();
    const Payload* a =
        token < group[1] ? args.activation + static_cast<size_t>(group[4 + token]) * args.intermediate : nullptr;
    for (int k = 0; k < args.intermediate; k += kPass) {
      uint4 tokens[5];
#pragma unroll
      for (int i = 0; i < 5; ++i)
        tokens[i] = a == nullptr ? zero16() : P::arrange(load16(a + k + 8 * P::unit(i, part)));
      const size_t row = row0 + fragment_row();
      typename P::Slice low = P::load_slice(args.w2, args.w2_scale, row, args.intermediate, k, part);
      typename P::Slice high = P::load_slice(args.w2, args.w2_scale, row + 8, args.intermediate, k, part);
#pragma unroll
      for (int t = 0; t < kW2Tiles; ++t) {
        uint4 w_low[5], w_high[5];
        P::template expand_slice<S>(low, w_low);
        P::template expand_slice<S>(high, w_high);
        if (t + 1 < kW2Tiles) {
          low = P::load_slice(args.w2, args.w2_scale, row + 16 * (t + 1), args.intermediate, k, part);
          high = P::load_slice(args.w2, args.w2_scale, row + 16 * (t + 1) + 8, args.intermediate, k, part);
        }
#pragma unroll
        for (int i = 0; i < 5; ++i) multiply<S>(acc[t], w_low[i], w_high[i], tokens[i]);
      }
    }
  }

  KS_DEVICE static void product(const Args& args, const int* group, Payload* stage) {
    const int warp = threadIdx.x >> 5, lane = lane_id();
    const int row0 = blockIdx.x * kW2Rows + warp * kW2Tiles * 16;
    Accumulator acc[kW2Tiles];
#pragma unroll
    for (int t = 0; t < kW2Tiles; ++t) clear(acc[t]);
    tiles(args, group, static_cast<size_t>(group[0]) * kHidden + row0, acc);
    const float scale = global_scale<P>(args.w2_global, group[0]);
    Payload* const mine = stage + warp * 8 * 64;  // [route][64 rows]
#pragma unroll
    for (int t = 0; t < kW2Tiles; ++t) {
      reduce(acc[t]);
      for_each_element(acc[t], [&](int row, int column, float value) {
        mine[column * 64 + t * 16 + row] = S::from_float(value * scale);
      });
    }
    __syncwarp();
    for (int column = 0; column < group[1]; ++column) {
      Payload* const to = args.routed + static_cast<size_t>(group[4 + column]) * kHidden + row0;
      reinterpret_cast<unsigned*>(to)[lane] = reinterpret_cast<const unsigned*>(mine + column * 64)[lane];
    }
  }

  // The last block of a row tile to finish adds the slots up: the sum's order does not depend on which block that is.
  KS_DEVICE static void reduce_when_last(const Args& args, int groups) {
    KS_SHARED(int, last, 1);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last[0] = groups == 0 || atomicAdd(args.arrivals + blockIdx.x, 1) == groups - 1;
    __syncthreads();
    if (!last[0]) return;
    __threadfence();
    const int column = blockIdx.x * kW2Rows + lane_id() * 8, tokens = args.routes / args.top_k;
    for (int token = threadIdx.x >> 5; token < tokens; token += kWarps) reduce_vector<S>(args, token, column);
  }

  KS_DEVICE static void run(const Args& args) {
    KS_SHARED(Payload, stage, kWarps * 8 * 64);
    KS_SHARED(int, group, kPlanGroup);
    wait_for_predecessor();
    release_successor();
    const int wanted = blockIdx.y, groups = args.plan[0];
    if (threadIdx.x < kPlanGroup) group[threadIdx.x] = args.plan[kPlanHeader + kPlanGroup * wanted + threadIdx.x];
    __syncthreads();
    if (wanted < groups) product(args, group, stage);
    // With no valid route at all, the first block of each tile still owes the zeros.
    if (kFusedReduce && (wanted < groups || (groups == 0 && wanted == 0))) reduce_when_last(args, groups);
  }
};

}  // namespace moe
}  // namespace ks

KS_ENTRY(ks_moe_plan, ks::moe::kPlanThreads, ks::moe::PlanArgs, ks::moe::plan_body)

#define KS_MOE_ENTRIES(tag, S, P)                                                                      \
  KS_ENTRY(ks_moe_w13_##tag, ks::moe::kThreads, ks::moe::Args, ks::moe::W13<S, P, 4, false>::run)      \
  KS_ENTRY(ks_moe_w13_inline_##tag, ks::moe::kThreads, ks::moe::Args, ks::moe::W13<S, P, 4, true>::run) \
  KS_ENTRY(ks_moe_w13_split2_##tag, ks::moe::kThreads, ks::moe::Args, ks::moe::W13<S, P, 2, false>::run) \
  KS_ENTRY(ks_moe_w2_##tag, ks::moe::kThreads, ks::moe::Args, ks::moe::W2<S, P, false>::run)           \
  KS_ENTRY(ks_moe_w2_reduce_##tag, ks::moe::kThreads, ks::moe::Args, ks::moe::W2<S, P, true>::run)

#define KS_MOE_STORAGE(name, S)                                                    \
  KS_MOE_ENTRIES(nvfp4_##name, S, ks::moe::Nvfp4)                                  \
  KS_MOE_ENTRIES(plain_##name, S, ks::moe::Plain)                                  \
  KS_ENTRY(ks_moe_reduce_##name, ks::moe::kReduceThreads, ks::moe::Args, ks::moe::reduce_body<S>)

KS_MOE_STORAGE(fp16, ks::Fp16)
#if KS_HAS_BF16
KS_MOE_STORAGE(bf16, ks::Bf16)
#endif
