// SPDX-License-Identifier: Apache-2.0
// Gated hyper-connections for small batches: combine + per-stream norm, down + inject, up + gate + mix.
// The contract is in this folder's __init__.py; f() there is round_to<S> here.
#include "../common/cluster.cuh"
#include "../common/mma.cuh"

namespace ks {
namespace hyper_connection {

constexpr int kStreams = 4;

// ---------------------------------------------------------------------------------------------------------------------
// combine + norm: block (stream, row). R' = f(R + B * 2 sigmoid(J / 4)); xn = f(y + y w), y = R' rsqrt(mean(R'^2) + eps)
// ---------------------------------------------------------------------------------------------------------------------
constexpr int kNormThreads = 320;
constexpr int kNormWarps = kNormThreads / 32;

struct NormArgs {
  const Payload* residual;   // [rows, 4 * hidden], row stride residual_stride
  const Payload* block;      // [rows, hidden], or null: norm only, `combined` is not written
  const Payload* injection;  // [rows, 4] logits, or null: unit weights
  const Payload* weight;     // [4 * hidden] (stream_weight_stride = hidden) or [hidden] (0)
  Payload* combined;         // [rows, 4 * hidden] packed
  Payload* normed;           // [rows, 4 * hidden] packed
  int* arrivals;             // zeroed here for the down kernel of the same chain, or null
  unsigned long long* hits;
  long long residual_stride, block_stride, injection_stride;  // elements
  int rows, hidden, stream_weight_stride, arrival_count;
  float eps;
  int reserved;
};

KS_DEVICE float block_sum(float value, float* partial) {
  value = warp_sum(value);
  if (lane_id() == 0) partial[threadIdx.x >> 5] = value;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kNormWarps; ++warp) total += partial[warp];
  return total;
}

template <class S>
KS_DEVICE void combine_norm(const NormArgs& args) {
  KS_SHARED(float, partial, kNormWarps);
  KS_SHARED(uint4, staged_weight, kNormThreads);
  release_successor();
  const int stream = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
  const int column = 8 * static_cast<int>(threadIdx.x);
  const bool active = column < args.hidden;
  uint4 residual = zero16(), block = zero16();
  Staged<1> weight(staged_weight);
  weight.fetch(0, args.weight + (active ? stream * args.stream_weight_stride + column : 0), active);
  wait_for_predecessor();
  count_route(args.hits, args.rows);
  if (args.arrivals != nullptr && stream == 0 && row == 0 && static_cast<int>(threadIdx.x) < args.arrival_count)
    args.arrivals[threadIdx.x] = 0;

  if (active) residual = load16(args.residual + row * args.residual_stride + stream * args.hidden + column);
  if (active && args.block != nullptr) block = load16(args.block + row * args.block_stride + column);
  float scale = 1.0f;
  if (args.injection != nullptr)
    scale = 2.0f * sigmoid(S::to_float(args.injection[row * args.injection_stride + stream]) / kStreams);

  const long long out = (static_cast<long long>(row) * kStreams + stream) * args.hidden + column;
  float value[8];
  unpack8<S>(residual, value);
  if (args.block != nullptr) {
    float added[8];
    unpack8<S>(block, added);
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] = round_to<S>(fmaf(added[i], scale, value[i]));  // rounded before the norm
    if (active) store16(args.combined + out, pack8<S>(value));
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) squares = fmaf(value[i], value[i], squares);
  const float inverse = rsqrtf(block_sum(squares, partial) / static_cast<float>(args.hidden) + args.eps);
  float affine[8];
  wait_async_copies();
  unpack8<S>(weight.get(0), affine);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float y = value[i] * inverse;
    value[i] = fmaf(y, affine[i], y);
  }
  if (active) store16(args.normed + out, pack8<S>(value));
}

// ---------------------------------------------------------------------------------------------------------------------
// down + inject: P = f(xn Wd^T); lora = f(t sigmoid(t)), t = P / 4; injection = P of the last rows.
// A block takes 16 weight rows and 1280 of k; its eight warps take 160 of k each. Sums over k are made in this order:
// inside a warp by the matrix atom, over the eight warps ascending, over the blocks of one row tile ascending.
// ---------------------------------------------------------------------------------------------------------------------
constexpr int kDownWarps = 8;
constexpr int kDownThreads = 32 * kDownWarps;
constexpr int kDownSteps = 5;                             // of 32 of k, by one warp
constexpr int kDownSlice = 32 * kDownSteps * kDownWarps;  // 1280 of k, by one block

struct DownArgs {
  const Payload* normed;  // [rows, depth] packed
  const Payload* weight;  // [lora_rows + injection_rows (+ padding, never read), depth] packed
  Payload* lora;          // [rows, lora_rows], row stride lora_stride
  Payload* injection;     // [rows, injection_rows], row stride injection_stride, or null
  float* partials;        // [slices, row tiles, 16 * tokens padded to 8]; unused by the clustered form
  int* arrivals;          // [row tiles], zero before the launch; unused by the clustered form
  unsigned long long* hits;
  long long lora_stride, injection_stride;  // elements
  int rows, depth, lora_rows, injection_rows;
};

template <class S>
KS_DEVICE void down_epilogue(const DownArgs& args, int weight_row, int token, float sum) {
  if (token >= args.rows) return;
  const Payload projected = S::from_float(sum);
  if (weight_row < args.lora_rows) {
    const float t = S::to_float(projected) / kStreams;
    args.lora[token * args.lora_stride + weight_row] = S::from_float(t * sigmoid(t));
  } else if (weight_row < args.lora_rows + args.injection_rows) {
    args.injection[token * args.injection_stride + weight_row - args.lora_rows] = projected;
  }
}

// Leaves each warp's sums, [16 weight rows][8 * kTiles tokens] floats, in shared memory, and returns where they begin
// and how far apart they are. Fetches the weights before the previous kernel's results are waited for.
struct WarpTiles {
  const float* first;
  int stride;
};
template <class S, int kTiles>
KS_DEVICE WarpTiles down_warp_sums(const DownArgs& args, int row_tile, int slice, unsigned char* shared) {
  constexpr int kTokens = 8 * kTiles, kElements = 16 * kTokens;
  typedef Staged<2 * kDownSteps> Weights;
  typedef Staged<kTiles * kDownSteps> Tokens;
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  const int first = slice * kDownSlice + warp * (32 * kDownSteps) + 8 * fragment_chunk();
  const int limit = args.lora_rows + args.injection_rows;
  const int low = 16 * row_tile + fragment_row(), high = low + 8;
  Weights weights(shared);
#pragma unroll
  for (int step = 0; step < kDownSteps; ++step) {
    const int k = first + 32 * step;
    const bool inside = k < args.depth;
    weights.fetch(2 * step, args.weight + (inside && low < limit ? 1ll * low * args.depth + k : 0), inside && low < limit);
    weights.fetch(2 * step + 1, args.weight + (inside && high < limit ? 1ll * high * args.depth + k : 0),
                  inside && high < limit);
  }
  wait_for_predecessor();
  Tokens tokens(shared + Weights::kBytesPerThread * kDownThreads);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int token = 8 * t + fragment_row();
#pragma unroll
    for (int step = 0; step < kDownSteps; ++step) {
      const int k = first + 32 * step;
      const bool inside = k < args.depth && token < args.rows;
      tokens.fetch(t * kDownSteps + step, args.normed + (inside ? 1ll * token * args.depth + k : 0), inside);
    }
  }
  wait_async_copies();
  Accumulator acc[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) clear(acc[t]);
#pragma unroll
  for (int step = 0; step < kDownSteps; ++step) {
    const uint4 w_low = weights.get(2 * step), w_high = weights.get(2 * step + 1);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) multiply<S>(acc[t], w_low, w_high, tokens.get(t * kDownSteps + step));
  }
  // The warp is done with its staged weights: its sums take their place.
  constexpr int kStride = Weights::kBytesPerThread ? Weights::kBytesPerThread * 32 / 4 : kElements;
  static_assert(kStride >= kElements, "a warp's sums must fit where its weights were");
  float* const mine = reinterpret_cast<float*>(shared) + warp * kStride;
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    reduce(acc[t]);
    for_each_element(acc[t], [&](int weight_row, int token, float value) {
      mine[weight_row * kTokens + 8 * t + token] = value;
    });
  }
  __syncthreads();
  WarpTiles tiles;
  tiles.first = reinterpret_cast<const float*>(shared);
  tiles.stride = kStride;
  return tiles;
}

KS_DEVICE float sum_of_warps(const WarpTiles& tiles, int element) {
  float sum = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kDownWarps; ++warp) sum += tiles.first[warp * tiles.stride + element];
  return sum;
}

// Grid (slices, row tiles): partial sums through global memory; the last block of a row tile to arrive adds them.
template <class S, int kTiles>
KS_DEVICE void down(const DownArgs& args) {
  constexpr int kTokens = 8 * kTiles, kElements = 16 * kTokens;
  KS_DYNAMIC_SHARED(unsigned char, shared);
  KS_SHARED(int, last, 1);
  release_successor();
  const int slice = static_cast<int>(blockIdx.x), row_tile = static_cast<int>(blockIdx.y);
  const int slices = static_cast<int>(gridDim.x), row_tiles = static_cast<int>(gridDim.y);
  const WarpTiles tiles = down_warp_sums<S, kTiles>(args, row_tile, slice, shared);
  count_route(args.hits, args.rows);
  for (int e = static_cast<int>(threadIdx.x); e < kElements; e += kDownThreads)
    args.partials[(slice * row_tiles + row_tile) * kElements + e] = sum_of_warps(tiles, e);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last[0] = atomicAdd(args.arrivals + row_tile, 1) == slices - 1;
  __syncthreads();
  if (!last[0]) return;
  __threadfence();
  for (int e = static_cast<int>(threadIdx.x); e < kElements; e += kDownThreads) {
    float sum = 0.0f;
    for (int s = 0; s < slices; ++s) sum += load_from_l2(args.partials + (s * row_tiles + row_tile) * kElements + e);
    down_epilogue<S>(args, 16 * row_tile + e / kTokens, e % kTokens, sum);
  }
}

#if KS_HAS_CLUSTERS
// The same sums in the same order when a row tile has exactly eight slices: they form a cluster, and each pushes its sums
// of weight rows 2 r, 2 r + 1 into the shared memory of rank r. This spares the fence, the counter and the reads through
// L2 of the form above.
constexpr int kDownCluster = 8;

template <class S, int kTiles>
KS_DEVICE void down_clustered(const DownArgs& args) {
  constexpr int kTokens = 8 * kTiles, kElements = 16 * kTokens, kShare = kElements / kDownCluster;
  KS_DYNAMIC_SHARED(unsigned char, shared);
  KS_SHARED(float, received, kElements);  // [rank][kShare]
  KS_SHARED(unsigned long long, inbox, 1);
  release_successor();
  const int slice = static_cast<int>(blockIdx.x), row_tile = static_cast<int>(blockIdx.y);
  open_inbox(inbox, kElements * sizeof(float));
  arrive_open();
  const WarpTiles tiles = down_warp_sums<S, kTiles>(args, row_tile, slice, shared);
  wait_all_open();
  for (int e = static_cast<int>(threadIdx.x); e < kElements; e += kDownThreads)
    push(received + slice * kShare + e % kShare, e / kShare, sum_of_warps(tiles, e), inbox);
  count_route(args.hits, args.rows);
  wait_inbox(inbox);
  const int e = static_cast<int>(threadIdx.x);
  if (e >= kShare) return;
  float sum = 0.0f;
#pragma unroll
  for (int rank = 0; rank < kDownCluster; ++rank) sum += received[rank * kShare + e];
  down_epilogue<S>(args, 16 * row_tile + 2 * slice + e / kTokens, e % kTokens, sum);
}

// ---------------------------------------------------------------------------------------------------------------------
// combine + norm + down + inject in one launch, for H = 2560: the cluster of a row tile holds all of a row, two blocks a
// stream. Every cluster computes R' and xn for itself, straight into matrix operands; the first one also stores them.
// ---------------------------------------------------------------------------------------------------------------------
struct CombineDownArgs {
  const Payload* residual;     // [rows, 4 * hidden], row stride residual_stride
  const Payload* block;        // [rows, hidden]
  const Payload* injection;    // [rows, 4] logits, or null: unit weights
  const Payload* norm_weight;  // [4 * hidden] (stream_weight_stride = hidden) or [hidden] (0)
  const Payload* weight;       // [lora_rows + injection_rows (+ padding, never read), 4 * hidden] packed
  Payload* combined;           // [rows, 4 * hidden] packed
  Payload* normed;             // [rows, 4 * hidden] packed
  Payload* lora;               // [rows, lora_rows] packed
  Payload* logits;             // [rows, injection_rows] packed, or null
  unsigned long long* hits;
  long long residual_stride, block_stride, injection_stride;  // elements
  int rows, hidden, stream_weight_stride, lora_rows, injection_rows;
  float eps;
};

template <class S, int kTiles, int kRowTiles>
KS_DEVICE void combine_down(const CombineDownArgs& args) {
  constexpr int kTokens = 8 * kTiles, kElements = kRowTiles * 16 * kTokens, kShare = kElements / kDownCluster;
  constexpr int kStagedWeights = (2 * kRowTiles + 1) * kDownSteps;
  typedef Staged<kStagedWeights> Weights;
  typedef Staged<kTiles * kDownSteps> Tokens;
  KS_DYNAMIC_SHARED(unsigned char, shared);
  KS_SHARED(float, received, kElements);  // [rank][kShare]
  KS_SHARED(float, warp_squares, kDownWarps * kTokens);
  KS_SHARED(float, squares, 2 * kTokens);  // of the two blocks of this stream
  KS_SHARED(unsigned long long, squares_inbox, 1);
  KS_SHARED(unsigned long long, inbox, 1);
  release_successor();
  const int slice = static_cast<int>(blockIdx.x), stream = slice >> 1, half = slice & 1;
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  const int limit = args.lora_rows + args.injection_rows, depth = kStreams * args.hidden;
  const int in_slice = warp * (32 * kDownSteps) + 8 * fragment_chunk();
  const int in_stream = half * kDownSlice + in_slice;
  open_inbox(squares_inbox, 2 * kTokens * sizeof(float));
  open_inbox(inbox, kElements * sizeof(float));
  arrive_open();

  Weights weights(shared);
#pragma unroll
  for (int step = 0; step < kDownSteps; ++step) {
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      const int row = 16 * kRowTiles * static_cast<int>(blockIdx.y) + 8 * r + fragment_row();
      const bool inside = row < limit;
      weights.fetch(step * 2 * kRowTiles + r,
                    args.weight + (inside ? 1ll * row * depth + slice * kDownSlice + in_slice + 32 * step : 0), inside);
    }
    weights.fetch(2 * kRowTiles * kDownSteps + step,
                  args.norm_weight + stream * args.stream_weight_stride + in_stream + 32 * step, true);
  }
  wait_for_predecessor();
  count_route(args.hits, args.rows);
  Tokens tokens(shared + Weights::kBytesPerThread * kDownThreads);
  uint4 x[kTiles][kDownSteps];  // B, then R', then xn
  float scale[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int token = 8 * t + fragment_row();
    const bool inside = token < args.rows;
#pragma unroll
    for (int step = 0; step < kDownSteps; ++step) {
      tokens.fetch(t * kDownSteps + step,
                   args.residual + (inside ? token * args.residual_stride + stream * args.hidden + in_stream + 32 * step : 0),
                   inside);
      x[t][step] = zero16();
      if (inside) x[t][step] = load16(args.block + token * args.block_stride + in_stream + 32 * step);
    }
    scale[t] = 1.0f;
    if (inside && args.injection != nullptr)
      scale[t] = 2.0f * sigmoid(S::to_float(args.injection[token * args.injection_stride + stream]) / kStreams);
  }
  wait_async_copies();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int token = 8 * t + fragment_row();
    float sum = 0.0f;
#pragma unroll
    for (int step = 0; step < kDownSteps; ++step) {
      float value[8], added[8];
      unpack8<S>(tokens.get(t * kDownSteps + step), value);
      unpack8<S>(x[t][step], added);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        value[i] = round_to<S>(fmaf(added[i], scale[t], value[i]));  // rounded before the norm
        sum = fmaf(value[i], value[i], sum);
      }
      x[t][step] = pack8<S>(value);
      if (blockIdx.y == 0 && token < args.rows)
        store16(args.combined + 1ll * token * depth + stream * args.hidden + in_stream + 32 * step, x[t][step]);
    }
    sum = sum_over_chunks(sum);
    if (fragment_chunk() == 0) warp_squares[warp * kTokens + token] = sum;
  }
  __syncthreads();
  wait_all_open();
  if (static_cast<int>(threadIdx.x) < kTokens) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kDownWarps; ++w) sum += warp_squares[w * kTokens + threadIdx.x];
    push(squares + half * kTokens + threadIdx.x, slice, sum, squares_inbox);
    push(squares + half * kTokens + threadIdx.x, slice ^ 1, sum, squares_inbox);
  }
  wait_inbox(squares_inbox);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int token = 8 * t + fragment_row();
    const float mean = (squares[token] + squares[kTokens + token]) / static_cast<float>(args.hidden);
    const float inverse = rsqrtf(mean + args.eps);
#pragma unroll
    for (int step = 0; step < kDownSteps; ++step) {
      float value[8], affine[8];
      unpack8<S>(x[t][step], value);
      unpack8<S>(weights.get(2 * kRowTiles * kDownSteps + step), affine);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float y = value[i] * inverse;
        value[i] = fmaf(y, affine[i], y);
      }
      x[t][step] = pack8<S>(value);
      if (blockIdx.y == 0 && token < args.rows)
        store16(args.normed + 1ll * token * depth + stream * args.hidden + in_stream + 32 * step, x[t][step]);
    }
  }
  Accumulator acc[kRowTiles][kTiles];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int t = 0; t < kTiles; ++t) clear(acc[r][t]);
#pragma unroll
  for (int step = 0; step < kDownSteps; ++step)
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const uint4 w_low = weights.get(step * 2 * kRowTiles + 2 * r), w_high = weights.get(step * 2 * kRowTiles + 2 * r + 1);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) multiply<S>(acc[r][t], w_low, w_high, x[t][step]);
    }
  constexpr int kStride = Weights::kBytesPerThread * 32 / 4;  // the warp's sums take the place of its weights
  static_assert(kStride >= kElements, "a warp's sums must fit where its weights were");
  float* const mine = reinterpret_cast<float*>(shared) + warp * kStride;
  __syncwarp();
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      reduce(acc[r][t]);
      for_each_element(acc[r][t], [&](int weight_row, int token, float value) {
        mine[(16 * r + weight_row) * kTokens + 8 * t + token] = value;
      });
    }
  __syncthreads();
  WarpTiles tiles;
  tiles.first = reinterpret_cast<const float*>(shared);
  tiles.stride = kStride;
  for (int e = static_cast<int>(threadIdx.x); e < kElements; e += kDownThreads)
    push(received + slice * kShare + e % kShare, e / kShare, sum_of_warps(tiles, e), inbox);
  wait_inbox(inbox);
  const int e = static_cast<int>(threadIdx.x);
  if (e >= kShare) return;
  float sum = 0.0f;
#pragma unroll
  for (int rank = 0; rank < kDownCluster; ++rank) sum += received[rank * kShare + e];
  DownArgs out;
  out.lora = args.lora;
  out.injection = args.logits;
  out.lora_stride = out.lora_rows = args.lora_rows;
  out.injection_stride = out.injection_rows = args.injection_rows;
  out.rows = args.rows;
  down_epilogue<S>(out, kRowTiles * (16 * static_cast<int>(blockIdx.y) + 2 * slice) + e / kTokens, e % kTokens, sum);
}
#endif

// ---------------------------------------------------------------------------------------------------------------------
// up + gate + mix: block[m, h] = f((sum over streams s ascending of sigmoid(f(lora . Wu[s, h])) * xn[m, s, h]) / 4).
// A block takes 16 columns h, one warp a stream; the gates of the four streams meet in shared memory.
// ---------------------------------------------------------------------------------------------------------------------
constexpr int kUpThreads = 32 * kStreams;
constexpr int kUpSteps = 10;  // of 32 of the low rank: up to 320
constexpr int kUpRowVectors = 4 * kUpSteps + 1;  // 16-byte vectors of a staged lora row; odd, so that rows spread over the banks

struct UpArgs {
  const Payload* lora;    // [rows, rank], row stride lora_stride
  const Payload* weight;  // [4, columns, rank] packed: this rank's columns of every stream
  const Payload* normed;  // [rows, 4, hidden] packed, advanced to this rank's first column
  Payload* mixed;         // [rows, columns], row stride mixed_stride, advanced to this rank's first column
  unsigned long long* hits;
  long long lora_stride, mixed_stride;  // elements
  int rows, rank, columns, hidden;
};

template <class S, int kTiles>
KS_DEVICE void up_mix(const UpArgs& args) {
  constexpr int kTokens = 8 * kTiles, kElements = 16 * kTokens;
  typedef Staged<2 * kUpSteps> Weights;
  constexpr int kWeightBytes = Weights::kBytesPerThread * kUpThreads;
  constexpr int kStride = kWeightBytes ? kWeightBytes / 4 / kStreams : kElements;  // floats between the streams' gates
  KS_DYNAMIC_SHARED(unsigned char, shared);
  KS_SHARED(uint4, lora_rows, kTokens * kUpRowVectors);
  KS_SHARED(uint4, streams, kTokens * kStreams * 2);  // [token][stream][16 columns]
  release_successor();
  const int thread = static_cast<int>(threadIdx.x), stream = thread >> 5;
  const int column = 16 * static_cast<int>(blockIdx.x);
  const Payload* const weight =
      args.weight + (1ll * stream * args.columns + column + fragment_row()) * args.rank + 8 * fragment_chunk();
  Weights weights(shared);
#pragma unroll
  for (int step = 0; step < kUpSteps; ++step) {
    const bool inside = 32 * step < args.rank;
    weights.fetch(2 * step, weight + (inside ? 32 * step : 0), inside);
    weights.fetch(2 * step + 1, weight + 8ll * args.rank + (inside ? 32 * step : 0), inside);
  }
  wait_for_predecessor();
  const int row_vectors = args.rank / 8;
  for (int i = thread; i < kTokens * 4 * kUpSteps; i += kUpThreads) {
    const int token = i / (4 * kUpSteps), vector = i % (4 * kUpSteps);
    const bool inside = token < args.rows && vector < row_vectors;
    copy16_async(lora_rows + token * kUpRowVectors + vector,
                 args.lora + (inside ? token * args.lora_stride + 8 * vector : 0), inside);
  }
  for (int i = thread; i < kTokens * kStreams * 2; i += kUpThreads) {
    const int token = i >> 3;
    const bool inside = token < args.rows;
    const long long row = 1ll * token * kStreams + ((i >> 1) & 3);
    copy16_async(streams + i, args.normed + (inside ? row * args.hidden + column + 8 * (i & 1) : 0), inside);
  }
  wait_async_copies();
  __syncthreads();
  count_route(args.hits, args.rows);
  // Two chains of dependent products (even and odd steps) halve the latency; Volta's registers hold only one.
  constexpr int kChains = KS_VOLTA_ATOM ? 1 : 2;
  Accumulator acc[kTiles], odd[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    clear(acc[t]);
    clear(odd[t]);
  }
#pragma unroll
  for (int step = 0; step < kUpSteps; ++step) {
    const uint4 w_low = weights.get(2 * step), w_high = weights.get(2 * step + 1);
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
      multiply<S>(step % kChains ? odd[t] : acc[t], w_low, w_high,
                  lora_rows[(8 * t + fragment_row()) * kUpRowVectors + 4 * step + fragment_chunk()]);
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
    if (kChains == 2) add(acc[t], odd[t]);
  float* const gates = reinterpret_cast<float*>(shared);  // [stream][16 columns][tokens], over the staged weights
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    reduce(acc[t]);
    for_each_element(acc[t], [&](int weight_row, int token, float value) {
      gates[stream * kStride + weight_row * kTokens + 8 * t + token] = sigmoid(round_to<S>(value));
    });
  }
  __syncthreads();
  const Payload* const xn = reinterpret_cast<const Payload*>(streams);
  for (int e = thread; e < kElements; e += kUpThreads) {
    const int token = e >> 4, h = e & 15;
    if (token >= args.rows) continue;
    float sum = 0.0f;
#pragma unroll
    for (int s = 0; s < kStreams; ++s)
      sum = fmaf(gates[s * kStride + h * kTokens + token], S::to_float(xn[(token * kStreams + s) * 16 + h]), sum);
    args.mixed[token * args.mixed_stride + column + h] = S::from_float(sum / kStreams);
  }
}

}  // namespace hyper_connection
}  // namespace ks

#define KS_HC_ENTRIES(storage, S)                                                                                     \
  KS_ENTRY(ks_hc_combine_norm_##storage, ks::hyper_connection::kNormThreads, ks::hyper_connection::NormArgs,          \
           ks::hyper_connection::combine_norm<S>)                                                                     \
  KS_HC_TILES(storage, S, 1)                                                                                          \
  KS_HC_TILES(storage, S, 2)                                                                                          \
  KS_HC_TILES(storage, S, 3)
#define KS_HC_TILES(storage, S, tiles)                                                                                \
  KS_ENTRY(ks_hc_down_##storage##_t##tiles, ks::hyper_connection::kDownThreads, ks::hyper_connection::DownArgs,       \
           ks::hyper_connection::down<S, tiles>)                                                                      \
  KS_ENTRY(ks_hc_up_mix_##storage##_t##tiles, ks::hyper_connection::kUpThreads, ks::hyper_connection::UpArgs,         \
           ks::hyper_connection::up_mix<S, tiles>)                                                                    \
  KS_HC_CLUSTERED(storage, S, tiles)
#if KS_HAS_CLUSTERS
#define KS_HC_CLUSTERED(storage, S, tiles)                                                                            \
  KS_ENTRY(ks_hc_down_clustered_##storage##_t##tiles, ks::hyper_connection::kDownThreads,                             \
           ks::hyper_connection::DownArgs, ks::hyper_connection::down_clustered<S, tiles>)                            \
  KS_ENTRY(ks_hc_combine_down1_##storage##_t##tiles, ks::hyper_connection::kDownThreads,                              \
           ks::hyper_connection::CombineDownArgs, ks::hyper_connection::combine_down<S, tiles, 1>)                    \
  KS_ENTRY(ks_hc_combine_down2_##storage##_t##tiles, ks::hyper_connection::kDownThreads,                              \
           ks::hyper_connection::CombineDownArgs, ks::hyper_connection::combine_down<S, tiles, 2>)
#else
#define KS_HC_CLUSTERED(storage, S, tiles)
#endif

KS_HC_ENTRIES(fp16, ks::Fp16)
#if KS_HAS_BF16
KS_HC_ENTRIES(bf16, ks::Bf16)
#endif
