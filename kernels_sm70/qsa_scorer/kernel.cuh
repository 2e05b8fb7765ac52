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
constexpr int kKeys = 16;        // keys of one unit of work: a matrix tile
constexpr int kRowsAtOnce = 2;   // query rows of one request that share a matrix tile: 2 x 4 heads = 8
constexpr int kMaxRequests = 1024;
constexpr int kResident = KS_ARCH >= 800 ? 3 : 2;  // blocks of the live schedule on a multiprocessor

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

// One unit: 16 keys of a request against its query rows. `stage` is this warp's [16 keys][8 columns] floats, padded.
constexpr int kStagePitch = 12;  // 8 products, whether the key was found, 3 unused
constexpr int kFound = 8;
constexpr int kStage = kKeys * kStagePitch;
template <class S>
KS_DEVICE void score_unit(const Args& args, int request, int unit, int live, const Tile& tile, const Query& first,
                          float* stage) {
  const int lane = lane_id(), key = unit * kKeys + (lane & 15), r = lane >> 4;
  for (int row0 = 0; row0 < args.rows_per_request; row0 += kRowsAtOnce) {
    const Query query = row0 == 0 ? first : load_query(args, request, row0);
    Accumulator acc;
    clear(acc);
#pragma unroll
    for (int j = 0; j < kSteps; ++j) multiply<S>(acc, tile.low[j], tile.high[j], query.v[j]);
    reduce(acc);
    for_each_element(acc, [&](int row, int column, float value) { stage[row * kStagePitch + column] = relu(value); });
    if (fragment_chunk() == 0) {
      stage[fragment_row() * kStagePitch + kFound] = tile.low_found ? 1.0f : 0.0f;
      stage[(fragment_row() + 8) * kStagePitch + kFound] = tile.high_found ? 1.0f : 0.0f;
    }
    __syncwarp();
    // Lanes 0..15 finish the first query row of the pair, lanes 16..31 the second.
    if (row0 + r < args.rows_per_request && key < live) {
      const float* const key_stage = stage + (lane & 15) * kStagePitch;
      const float* const head = key_stage + kHeads * r;
      // A score is never negative: -1 keeps a key that the page table lacks behind every real one.
      const float score = key_stage[kFound] != 0.0f ? ((head[0] + head[1]) + head[2]) + head[3] : -1.0f;
      const long long row = static_cast<long long>(request) * args.rows_per_request + row0 + r;
      if (key < args.visible[row]) args.scores[row * args.score_stride + key] = score;
    }
    __syncwarp();
  }
}

// Units first, first + step, ... below stop. The next unit's keys are on their way while this one is scored.
template <class S>
KS_DEVICE void score_run(const Args& args, int request, int first, int stop, int step, int live, float* stage) {
  if (first >= stop) return;
  const Query query = load_query(args, request, 0);
  Tile even = load_keys<S>(args, request, first * kKeys, live), odd;
  for (int unit = first; unit < stop; unit += 2 * step) {
    const int next = unit + step;
    if (next < stop) odd = load_keys<S>(args, request, next * kKeys, live);
    score_unit<S>(args, request, unit, live, even, query, stage);
    if (next >= stop) return;
    if (next + step < stop) even = load_keys<S>(args, request, (next + step) * kKeys, live);
    score_unit<S>(args, request, next, live, odd, query, stage);
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
  const int workers = static_cast<int>(gridDim.x) * kWarps, worker = static_cast<int>(blockIdx.x) * kWarps + warp;
  const int each = total / workers, rest = total - each * workers;  // the first `rest` take one more
  Share share;
  share.first = worker * each + min(worker, rest);
  share.last = share.first + each + (worker < rest ? 1 : 0);
  return share;
}

// Running totals of units after each request, for more requests than lanes. By warp 0; a barrier must follow.
KS_DEVICE void sum_units(const Args& args, int* ends) {
  const int lane = lane_id();
  int base = 0;
  for (int r0 = 0; r0 < args.requests; r0 += 32) {
    const int request = r0 + lane;
    const int sum = inclusive_sum(request < args.requests ? units_of(live_keys(args, request)) : 0, lane);
    if (request < args.requests) ends[request] = base + sum;
    base += __shfl_sync(0xffffffffu, sum, 31);
  }
}

template <class S>
KS_DEVICE void live_body(const Args& args) {
  KS_SHARED(float, stages, kWarps * kStage);
  KS_SHARED(int, ends, kMaxRequests);
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = lane_id();
  const bool few = args.requests <= 32;
  wait_for_predecessor();
  release_successor();
  count_route(args.hits, args.requests * args.rows_per_request);
  int live = 0, end = 0, request = 0;  // of request `lane`, when few
  if (few) {
    live = lane < args.requests ? live_keys(args, lane) : 0;
    end = inclusive_sum(units_of(live), lane);
  } else {
    if (warp == 0) sum_units(args, ends);
    __syncthreads();
  }
  const Share share = share_of(few ? __shfl_sync(0xffffffffu, end, 31) : ends[args.requests - 1], warp);
  for (int unit = share.first; unit < share.last;) {
    int start, stop, keys;
    if (few) {
      request = __popc(__ballot_sync(0xffffffffu, end <= unit));
      start = __shfl_sync(0xffffffffu, end, request == 0 ? 0 : request - 1);
      stop = __shfl_sync(0xffffffffu, end, request);
      keys = __shfl_sync(0xffffffffu, live, request);
    } else {
      while (ends[request] <= unit) ++request;
      start = ends[request == 0 ? 0 : request - 1];
      stop = ends[request];
      keys = live_keys(args, request);
    }
    if (request == 0) start = 0;
    stop = min(share.last, stop);
    score_run<S>(args, request, unit - start, stop - start, 1, keys, stages + warp * kStage);
    unit = stop;
  }
}

// Grid-stride within a request: warp w of the row of blocks takes units w, w + W, ...  (kept for its numbers)
template <class S>
KS_DEVICE void stride_body(const Args& args) {
  KS_SHARED(float, stages, kWarps * kStage);
  const int warp = static_cast<int>(threadIdx.x >> 5), request = static_cast<int>(blockIdx.y);
  wait_for_predecessor();
  release_successor();
  const int live = live_keys(args, request), units = units_of(live);
  const int step = static_cast<int>(gridDim.x) * kWarps;
  score_run<S>(args, request, static_cast<int>(blockIdx.x) * kWarps + warp, units, step, live,
               stages + warp * kStage);
}

// A grid of the cache's capacity, each warp `group` consecutive units, early exit.  (kept for its numbers)
template <class S>
KS_DEVICE void capacity_body(const Args& args) {
  KS_SHARED(float, stages, kWarps * kStage);
  const int warp = static_cast<int>(threadIdx.x >> 5), request = static_cast<int>(blockIdx.y);
  wait_for_predecessor();
  release_successor();
  const int live = live_keys(args, request), units = units_of(live);
  const int first = (static_cast<int>(blockIdx.x) * kWarps + warp) * args.group;
  score_run<S>(args, request, first, min(units, first + args.group), 1, live, stages + warp * kStage);
}

}  // namespace qsa_scorer
}  // namespace ks

#define KS_SCORER_ENTRIES(name, S)                                                                             \
  KS_ENTRY_RESIDENT(ks_qsa_score_##name, ks::qsa_scorer::kThreads, ks::qsa_scorer::kResident, ks::qsa_scorer::Args,   \
                    ks::qsa_scorer::live_body<S>)                                                                  \
  KS_ENTRY(ks_qsa_score_stride_##name, ks::qsa_scorer::kThreads, ks::qsa_scorer::Args, ks::qsa_scorer::stride_body<S>) \
  KS_ENTRY(ks_qsa_score_capacity_##name, ks::qsa_scorer::kThreads, ks::qsa_scorer::Args, ks::qsa_scorer::capacity_body<S>)

KS_SCORER_ENTRIES(fp16, ks::Fp16)
#if KS_HAS_BF16
KS_SCORER_ENTRIES(bf16, ks::Bf16)
#endif
