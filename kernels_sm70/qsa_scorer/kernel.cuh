// SPDX-License-Identifier: Apache-2.0
// Block scorer of QSA decode: score[m, c] = sum_h relu(q[m, h] . k[c]) over the compressed keys a row may see.
// Shapes, summation order, grid and floor bytes are in this folder's __init__.py.
#include "../common/mma.cuh"

namespace ks {
namespace qsa_scorer {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kHeads = 4;
constexpr int kSteps = 4;  // 128 dimensions in matrix steps of 32
constexpr int kKeys = 32;        // keys of one unit of work: two matrix tiles
constexpr int kRowsAtOnce = 2;   // query rows of one request that share a matrix tile: 2 x 4 heads = 8
constexpr int kMaxRequests = 1024;

struct Args {
  const Payload* q;        // [M, 4, 128], strides q_row_stride, q_head_stride
  const Payload* keys;     // [pages, page_keys, 128], strides key_page_stride, key_row_stride
  const int* page_table;   // [requests, table_width], row stride table_stride
  const int* visible;      // [M]
  float* scores;           // [M, columns], row stride score_stride; columns at or past visible are not written
  unsigned long long* hits;
  long long q_row_stride, q_head_stride;
  long long key_page_stride, key_row_stride;
  long long table_stride;
  long long score_stride;
  int requests;
  int rows_per_request;
  int table_width;
  int page_keys;
  int physical_pages;
  int group;  // units a warp takes in a row, of the grouped schedule
};

// The largest number of keys any row of the request may see, within the table.
KS_DEVICE int live_keys(const Args& args, int request) {
  int live = 0;
  for (int r = 0; r < args.rows_per_request; ++r) live = max(live, args.visible[request * args.rows_per_request + r]);
  const long long columns = static_cast<long long>(args.table_width) * args.page_keys;
  return live < columns ? live : static_cast<int>(columns);
}

KS_DEVICE const Payload* key_address(const Args& args, int request, int key, int live) {
  if (key >= live) return nullptr;
  const int page = args.page_table[request * args.table_stride + key / args.page_keys];
  if (page < 0 || page >= args.physical_pages) return nullptr;
  return args.keys + page * args.key_page_stride + (key % args.page_keys) * args.key_row_stride;
}

struct Tile {
  uint4 low[kSteps], high[kSteps];
  bool low_found, high_found;
};

template <class S>
KS_DEVICE Tile load_keys(const Args& args, int request, int key0, int live) {
  const Payload* low = key_address(args, request, key0 + fragment_row(), live);
  const Payload* high = key_address(args, request, key0 + fragment_row() + 8, live);
  const int offset = 8 * fragment_chunk();
  Tile tile;
  tile.low_found = low != nullptr;
  tile.high_found = high != nullptr;
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    tile.low[j] = low == nullptr ? zero16() : load16_streamed(low + 32 * j + offset);
    tile.high[j] = high == nullptr ? zero16() : load16_streamed(high + 32 * j + offset);
  }
  return tile;
}

// Matrix column = 4 * (query row of the pair) + head.
struct Query {
  uint4 v[kSteps];
};
KS_DEVICE Query load_query(const Args& args, int request, int row0) {
  const int row = row0 + fragment_row() / kHeads, head = fragment_row() % kHeads;
  Query query;
  const bool used = row < args.rows_per_request;
  const Payload* at = args.q + (static_cast<long long>(request) * args.rows_per_request + row) * args.q_row_stride +
                      head * args.q_head_stride + 8 * fragment_chunk();
#pragma unroll
  for (int j = 0; j < kSteps; ++j) query.v[j] = used ? load16(at + 32 * j) : zero16();
  return query;
}

KS_DEVICE float relu(float value) { return value > 0.0f || value != value ? value : 0.0f; }

// One unit: 32 keys of a request against its query rows. `stage` is this warp's [32 keys][8 columns] floats, padded.
constexpr int kStagePitch = 12;  // 8 products, whether the key was found, 3 unused
constexpr int kFound = 8;
template <class S>
KS_DEVICE void score_unit(const Args& args, int request, int unit, int live, const Query& first, float* stage) {
  const int key0 = unit * kKeys, lane = lane_id();
  Tile tiles[2];
#pragma unroll
  for (int t = 0; t < 2; ++t) tiles[t] = load_keys<S>(args, request, key0 + 16 * t, live);
  for (int row0 = 0; row0 < args.rows_per_request; row0 += kRowsAtOnce) {
    const Query query = row0 == 0 ? first : load_query(args, request, row0);
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      Accumulator acc;
      clear(acc);
#pragma unroll
      for (int j = 0; j < kSteps; ++j) multiply<S>(acc, tiles[t].low[j], tiles[t].high[j], query.v[j]);
      reduce(acc);
      for_each_element(acc, [&](int row, int column, float value) {
        stage[(16 * t + row) * kStagePitch + column] = relu(value);
      });
      if (fragment_chunk() == 0) {
        stage[(16 * t + fragment_row()) * kStagePitch + kFound] = tiles[t].low_found ? 1.0f : 0.0f;
        stage[(16 * t + fragment_row() + 8) * kStagePitch + kFound] = tiles[t].high_found ? 1.0f : 0.0f;
      }
    }
    __syncwarp();
    const int key = key0 + lane;
    // A score is never negative: -1 keeps a key that the page table lacks behind every real one.
    const bool found = stage[lane * kStagePitch + kFound] != 0.0f;
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if (row0 + r >= args.rows_per_request) continue;
      const float* head = stage + lane * kStagePitch + kHeads * r;
      const float score = found ? ((head[0] + head[1]) + head[2]) + head[3] : -1.0f;
      const long long row = static_cast<long long>(request) * args.rows_per_request + row0 + r;
      if (key < live && key < args.visible[row]) args.scores[row * args.score_stride + key] = score;
    }
    __syncwarp();
  }
}

// ---- schedules: which units a warp takes ----------------------------------------------------------------------------
// Live: units of all requests form one list; warp w of W takes its w-th W-th, contiguously. Blocks beyond the list
// leave at once. Any context length is covered by a grid that depends only on the number of multiprocessors.
// Up to 32 requests, lane r of every warp holds request r's part of the list, without shared memory or a barrier.
KS_DEVICE int units_of(int live) { return (live + kKeys - 1) / kKeys; }

KS_DEVICE int inclusive_sum(int value, int lane) {
#pragma unroll
  for (int offset = 1; offset < 32; offset <<= 1) {
    const int other = __shfl_up_sync(0xffffffffu, value, offset);
    if (lane >= offset) value += other;
  }
  return value;
}

struct Share {
  int first, last;  // units of the whole list
};
KS_DEVICE Share share_of(int total, int warp) {
  const long long workers = static_cast<long long>(gridDim.x) * kWarps;
  const long long worker = static_cast<long long>(blockIdx.x) * kWarps + warp;
  Share share;
  share.first = static_cast<int>(total * worker / workers);
  share.last = static_cast<int>(total * (worker + 1) / workers);
  return share;
}

template <class S>
KS_DEVICE void few_requests(const Args& args, float* stage) {
  const int lane = lane_id();
  const int live = lane < args.requests ? live_keys(args, lane) : 0;
  const int end = inclusive_sum(units_of(live), lane);
  const Share share = share_of(__shfl_sync(0xffffffffu, end, 31), static_cast<int>(threadIdx.x >> 5));
  int unit = share.first;
  while (unit < share.last) {
    const int request = __popc(__ballot_sync(0xffffffffu, end <= unit));
    const int before = __shfl_sync(0xffffffffu, end, request == 0 ? 0 : request - 1);
    const int start = request == 0 ? 0 : before;
    const int stop = min(share.last, __shfl_sync(0xffffffffu, end, request));
    const int keys = __shfl_sync(0xffffffffu, live, request);
    const Query query = load_query(args, request, 0);
    for (; unit < stop; ++unit) score_unit<S>(args, request, unit - start, keys, query, stage);
  }
}

template <class S>
KS_DEVICE void many_requests(const Args& args, float* stage, int* ends) {
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = lane_id();
  if (warp == 0) {
    int base = 0;
    for (int r0 = 0; r0 < args.requests; r0 += 32) {
      const int request = r0 + lane;
      const int sum = inclusive_sum(request < args.requests ? units_of(live_keys(args, request)) : 0, lane);
      if (request < args.requests) ends[request] = base + sum;
      base += __shfl_sync(0xffffffffu, sum, 31);
    }
  }
  __syncthreads();
  const Share share = share_of(ends[args.requests - 1], warp);
  int unit = share.first, request = 0;
  while (unit < share.last) {
    while (ends[request] <= unit) ++request;
    const int start = request == 0 ? 0 : ends[request - 1];
    const int stop = min(share.last, ends[request]), keys = live_keys(args, request);
    const Query query = load_query(args, request, 0);
    for (; unit < stop; ++unit) score_unit<S>(args, request, unit - start, keys, query, stage);
  }
}

template <class S>
KS_DEVICE void live_body(const Args& args) {
  KS_SHARED(float, stages, kWarps * kKeys * kStagePitch);
  KS_SHARED(int, ends, kMaxRequests);  // running total of units after each request
  wait_for_predecessor();
  release_successor();
  count_route(args.hits, args.requests * args.rows_per_request);
  float* const stage = stages + (threadIdx.x >> 5) * kKeys * kStagePitch;
  if (args.requests <= 32) {
    few_requests<S>(args, stage);
  } else {
    many_requests<S>(args, stage, ends);
  }
}

// Grid-stride within a request: warp w of the row of blocks takes units w, w + W, ...  (kept for its numbers)
template <class S>
KS_DEVICE void stride_body(const Args& args) {
  KS_SHARED(float, stages, kWarps * kKeys * kStagePitch);
  const int warp = static_cast<int>(threadIdx.x >> 5), request = static_cast<int>(blockIdx.y);
  wait_for_predecessor();
  release_successor();
  const int live = live_keys(args, request), units = units_of(live);
  const int step = static_cast<int>(gridDim.x) * kWarps;
  int unit = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (unit >= units) return;
  const Query query = load_query(args, request, 0);
  for (; unit < units; unit += step)
    score_unit<S>(args, request, unit, live, query, stages + warp * kKeys * kStagePitch);
}

// A grid of the cache's capacity, each warp `group` consecutive units, early exit.  (kept for its numbers)
template <class S>
KS_DEVICE void capacity_body(const Args& args) {
  KS_SHARED(float, stages, kWarps * kKeys * kStagePitch);
  const int warp = static_cast<int>(threadIdx.x >> 5), request = static_cast<int>(blockIdx.y);
  wait_for_predecessor();
  release_successor();
  const int live = live_keys(args, request), units = units_of(live);
  const int first = (static_cast<int>(blockIdx.x) * kWarps + warp) * args.group;
  if (first >= units) return;
  const Query query = load_query(args, request, 0);
  for (int unit = first; unit < min(units, first + args.group); ++unit)
    score_unit<S>(args, request, unit, live, query, stages + warp * kKeys * kStagePitch);
}

}  // namespace qsa_scorer
}  // namespace ks

#define KS_SCORER_ENTRIES(name, S)                                                                             \
  KS_ENTRY(ks_qsa_score_##name, ks::qsa_scorer::kThreads, ks::qsa_scorer::Args, ks::qsa_scorer::live_body<S>)   \
  KS_ENTRY(ks_qsa_score_stride_##name, ks::qsa_scorer::kThreads, ks::qsa_scorer::Args, ks::qsa_scorer::stride_body<S>) \
  KS_ENTRY(ks_qsa_score_capacity_##name, ks::qsa_scorer::kThreads, ks::qsa_scorer::Args, ks::qsa_scorer::capacity_body<S>)

KS_SCORER_ENTRIES(fp16, ks::Fp16)
#if KS_HAS_BF16
KS_SCORER_ENTRIES(bf16, ks::Bf16)
#endif
