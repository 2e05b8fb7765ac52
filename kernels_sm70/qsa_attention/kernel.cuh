// SPDX-License-Identifier: Apache-2.0
// Split-KV sparse attention over 4-token pages in logical order (the output of qsa_page4), one KV head.
// The order of every sum follows the page list's positions, never an address: relocating KV pages changes no bit.
// Shapes, rounding points and floor bytes are in this folder's __init__.py.
#include "../common/mma.cuh"

namespace ks {
namespace qsa_attention {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kHeads = 6;
constexpr int kDim = 256;
constexpr int kWarpTokens = 32;
constexpr int kSplitTokens = kWarps * kWarpTokens;
constexpr int kSplits = 17;  // 2048 + 3 tokens in pieces of 128
constexpr int kListWidth = 516;
constexpr int kPagesColumn = 513;
constexpr int kTailColumn = 514;
constexpr int kMergeThreads = 64;
constexpr float kLowest = -3.0e38f;  // stands for minus infinity: differences stay numbers

struct Args {
  const Payload* q;       // [M, 6, 256], strides q_row_stride, q_head_stride
  const Payload* k;       // token rows of 256; page_stride and token_stride elements apart
  const Payload* v;
  const Payload* gate;    // [M, 6, 256], packed
  const int* list;        // [M, 516] of qsa_page4
  float* partial;         // [M, 17, 6, 256]: sum of p v, relative to the split's maximum
  float* statistics;      // [M, 17, 6, 2]: maximum (base 2), sum of p
  Payload* out;           // [M, 6, 256], packed
  unsigned long long* hits;
  long long q_row_stride, q_head_stride;
  long long page_stride, token_stride;
  float scale;            // softmax scale * log2(e)
  int rows;
  int page_tokens;
  int reserved;
};

KS_DEVICE int token_count(const int* list) {
  const int pages = list[kPagesColumn], tail = list[kTailColumn];
  return 4 * pages - (tail > 0 ? 4 - tail : 0);
}

// Elements from the cache's base to a token's row.
KS_DEVICE long long token_offset(const Args& args, const int* list, int token) {
  const int per_page = args.page_tokens / 4, page = list[token >> 2];
  return page / per_page * args.page_stride + ((page % per_page) * 4 + (token & 3)) * args.token_stride;
}

// Scores of 32 tokens x 8 heads (6 used) into `stage`, [token][8]. Lane t holds token t's offset, or -1 past the end.
template <class S>
KS_DEVICE void score_tokens(const Args& args, long long offset, float* stage) {
  const int row = static_cast<int>(blockIdx.y), head = fragment_row();
  const Payload* query = head < kHeads ? args.q + row * args.q_row_stride + head * args.q_head_stride : nullptr;
#pragma unroll 1
  for (int t = 0; t < 2; ++t) {
    const long long low_at = __shfl_sync(0xffffffffu, offset, 16 * t + fragment_row());
    const long long high_at = __shfl_sync(0xffffffffu, offset, 16 * t + fragment_row() + 8);
    const Payload* low = low_at < 0 ? nullptr : args.k + low_at;
    const Payload* high = high_at < 0 ? nullptr : args.k + high_at;
    Accumulator acc;
    clear(acc);
#pragma unroll
    for (int k = 0; k < kDim; k += 32) {
      const int at = k + 8 * fragment_chunk();
      multiply<S>(acc, low == nullptr ? zero16() : load16(low + at), high == nullptr ? zero16() : load16(high + at),
                  query == nullptr ? zero16() : load16(query + at));
    }
    reduce(acc);
    for_each_element(acc, [&](int r, int column, float value) { stage[(16 * t + r) * 8 + column] = value; });
  }
}

KS_DEVICE float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

// Block (split, row). Each warp takes 32 tokens, then the four are merged in warp order.
template <class S>
KS_DEVICE void split_body(const Args& args) {
  KS_SHARED(float, stages, kWarps * kWarpTokens * 8);
  KS_SHARED(float, outputs, kWarps * kHeads * kDim);
  KS_SHARED(float, stats, kWarps * kHeads * 2);
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = lane_id();
  const int split = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
  wait_for_predecessor();
  release_successor();
  count_route(args.hits, args.rows);
  const int* const list = args.list + row * kListWidth;
  const int tokens = token_count(list);
  if (split * kSplitTokens >= tokens) return;  // the merge reads live splits alone
  const int token0 = split * kSplitTokens + warp * kWarpTokens;
  float* const stage = stages + warp * kWarpTokens * 8;
  float maximum[kHeads], sum[kHeads], acc[kHeads][8];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    maximum[h] = kLowest;
    sum[h] = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) acc[h][i] = 0.0f;
  }
  if (token0 < tokens) {
    const long long offset = token0 + lane < tokens ? token_offset(args, list, token0 + lane) : -1;
    score_tokens<S>(args, offset, stage);
    __syncwarp();
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float score = token0 + lane < tokens ? stage[lane * 8 + h] * args.scale : kLowest;
      maximum[h] = warp_max(score);
      const float p = token0 + lane < tokens ? exp2f(score - maximum[h]) : 0.0f;
      sum[h] = warp_sum(p);
      stage[lane * 8 + h] = p;
    }
    __syncwarp();
    const int live = min(kWarpTokens, tokens - token0);
#pragma unroll 8
    for (int t = 0; t < live; ++t) {
      float value[8];
      unpack8<S>(load16(args.v + __shfl_sync(0xffffffffu, offset, t) + 8 * lane), value);
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const float p = stage[t * 8 + h];
#pragma unroll
        for (int i = 0; i < 8; ++i) acc[h][i] = fmaf(p, value[i], acc[h][i]);
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
#pragma unroll
    for (int i = 0; i < 8; ++i) outputs[(warp * kHeads + h) * kDim + 8 * lane + i] = acc[h][i];
    if (lane == 0) {
      stats[(warp * kHeads + h) * 2] = maximum[h];
      stats[(warp * kHeads + h) * 2 + 1] = sum[h];
    }
  }
  __syncthreads();
  const long long base = (static_cast<long long>(row) * kSplits + split) * kHeads;
  for (int h = 0; h < kHeads; ++h) {
    float top = stats[h * 2], weight[kWarps], total = 0.0f;
#pragma unroll
    for (int w = 1; w < kWarps; ++w) top = fmaxf(top, stats[(w * kHeads + h) * 2]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      // Warp 0 always has a token here, so `top` is a number unless the scores are not.
      const float own = stats[(w * kHeads + h) * 2];
      weight[w] = own == kLowest ? 0.0f : exp2f(own - top);
      total = fmaf(weight[w], stats[(w * kHeads + h) * 2 + 1], total);
    }
    for (int d = static_cast<int>(threadIdx.x); d < kDim; d += kThreads) {
      float merged = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) merged = fmaf(weight[w], outputs[(w * kHeads + h) * kDim + d], merged);
      args.partial[(base + h) * kDim + d] = merged;
    }
    if (threadIdx.x == 0) {
      args.statistics[(base + h) * 2] = top;
      args.statistics[(base + h) * 2 + 1] = total;
    }
  }
}

// Block (head, row): the live splits in order, then o = f(O), out = f(o * sigmoid(gate)). Four dimensions a thread.
template <class S>
KS_DEVICE void merge_body(const Args& args) {
  wait_for_predecessor();
  release_successor();
  const int head = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
  const int tokens = token_count(args.list + row * kListWidth);
  const int splits = (tokens + kSplitTokens - 1) / kSplitTokens;
  const long long first = static_cast<long long>(row) * kSplits * kHeads + head;
  float top = kLowest;
  for (int s = 0; s < splits; ++s) top = fmaxf(top, args.statistics[(first + s * kHeads) * 2]);
  float total = 0.0f, sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
  for (int s = 0; s < splits; ++s) {
    const long long at = first + s * kHeads;
    const float weight = exp2f(args.statistics[at * 2] - top);
    total = fmaf(weight, args.statistics[at * 2 + 1], total);
    const uint4 piece = load16(args.partial + at * kDim + 4 * threadIdx.x);
    sum[0] = fmaf(weight, float_from_bits(piece.x), sum[0]);
    sum[1] = fmaf(weight, float_from_bits(piece.y), sum[1]);
    sum[2] = fmaf(weight, float_from_bits(piece.z), sum[2]);
    sum[3] = fmaf(weight, float_from_bits(piece.w), sum[3]);
  }
  const long long at = (static_cast<long long>(row) * kHeads + head) * kDim + 4 * threadIdx.x;
  const uint2 gates = load8(args.gate + at);
  const float gate[4] = {low_of<S>(gates.x), high_of<S>(gates.x), low_of<S>(gates.y), high_of<S>(gates.y)};
  float out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float o = splits == 0 ? 0.0f : round_to<S>(sum[i] / total);
    out[i] = o * sigmoid(gate[i]);
  }
  uint2 packed;
  packed.x = pack<S>(out[0], out[1]);
  packed.y = pack<S>(out[2], out[3]);
  store8(args.out + at, packed);
}

}  // namespace qsa_attention
}  // namespace ks

#define KS_ATTENTION_ENTRIES(name, S)                                                                                 \
  KS_ENTRY(ks_qsa_attention_split_##name, ks::qsa_attention::kThreads, ks::qsa_attention::Args,                        \
           ks::qsa_attention::split_body<S>)                                                                           \
  KS_ENTRY(ks_qsa_attention_merge_##name, ks::qsa_attention::kMergeThreads, ks::qsa_attention::Args,                   \
           ks::qsa_attention::merge_body<S>)

KS_ATTENTION_ENTRIES(fp16, ks::Fp16)
#if KS_HAS_BF16
KS_ATTENTION_ENTRIES(bf16, ks::Bf16)
#endif
