// SPDX-License-Identifier: Apache-2.0
// Selected blocks -> physical 4-token pages in ascending LOGICAL order. The order is a function of the logical blocks
// alone; the block table only supplies the payload, so moving KV pages cannot reorder a later sum.
// Integer work: the same bits on every architecture. The contract is in this folder's __init__.py.
#include "../common/memory.cuh"

namespace ks {
namespace qsa_page4 {

constexpr int kBlocks = 512;
constexpr int kThreads = 512;  // one selected block a thread
constexpr int kWarps = kThreads / 32;
constexpr int kWidth = 516;  // 512 pages + the tail's page, pages, tail tokens, rejected entries
constexpr int kPagesColumn = 513;
constexpr int kTailColumn = 514;
constexpr int kRejectedColumn = 515;

struct Args {
  const int* blocks;        // [M, 512], row stride blocks_stride
  const void* positions;    // [M] int32, or int64 when wide_positions; below 0: a padded row
  const int* visible;       // [M]
  const int* requests;      // [M]: row of the block table
  const int* block_table;   // [requests, table_width], row stride table_stride
  int* out;                 // [M, 516], packed
  unsigned long long* hits;
  long long blocks_stride;
  long long table_stride;
  int rows;
  int request_count;
  int table_width;
  int page_tokens;     // P, a multiple of 4
  int physical_pages;  // pages the KV cache has
  int wide_positions;
  int words;           // 32-bit words of the bitmap: ceil(table_width * P / 4 / 32) + 1, a multiple of 4
};

// Physical 4-token page of a logical block, or -1 when the table has none.
KS_DEVICE int locate(const Args& args, int request, int block) {
  const int per_page = args.page_tokens / 4, page = block / per_page;
  if (request < 0 || request >= args.request_count || block < 0 || page >= args.table_width) return -1;
  const int physical = args.block_table[request * args.table_stride + page];
  if (physical < 0 || physical >= args.physical_pages) return -1;
  return physical * per_page + block % per_page;
}

// Exclusive prefix of one int a thread over the block; `sums` is shared, kWarps ints.
KS_DEVICE int prefix(int value, int* sums, int& total) {
  const int lane = static_cast<int>(threadIdx.x & 31u), warp = static_cast<int>(threadIdx.x >> 5);
  int inclusive = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset <<= 1) {
    const int other = __shfl_up_sync(0xffffffffu, inclusive, offset);
    if (lane >= offset) inclusive += other;
  }
  if (lane == 31) sums[warp] = inclusive;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  return before + inclusive - value;
}

// Block (row). Marks the selected blocks in a bitmap; a block's rank is the number of marks below it.
KS_DEVICE void run(const Args& args) {
  KS_DYNAMIC_SHARED(unsigned, bitmap);  // [words], then [words] ranks
  KS_SHARED(int, sums, kWarps);
  KS_SHARED(int, rejects, kWarps);
  int* const ranks = reinterpret_cast<int*>(bitmap + args.words);
  const int thread = static_cast<int>(threadIdx.x);
  wait_for_predecessor();
  release_successor();
  count_route(args.hits, args.rows);
  const long long m = blockIdx.x;
  const int request = args.requests[m], seen = args.visible[m];
  const long long position = args.wide_positions ? static_cast<const long long*>(args.positions)[m]
                                                 : static_cast<const int*>(args.positions)[m];
  const long long next = position < 0 ? 0 : position + 1;  // tokens up to and with the row's own
  const int complete = seen < 0 ? 0 : min(seen, kBlocks);
  for (int w = thread; w < args.words; w += kThreads) bitmap[w] = 0u;
  const int block = thread < complete ? args.blocks[m * args.blocks_stride + thread] : -1;
  const int page = locate(args, request, block);
  __syncthreads();
  if (page >= 0) atomicOr(bitmap + (block >> 5), 1u << (block & 31));
  const int lost = __popc(__ballot_sync(0xffffffffu, thread < complete && page < 0));
  if ((thread & 31) == 0) rejects[thread >> 5] = lost;
  __syncthreads();
  // Each thread ranks a run of consecutive words.
  const int per_thread = (args.words + kThreads - 1) / kThreads, first = thread * per_thread;
  int marks = 0;
  for (int w = first; w < first + per_thread && w < args.words; ++w) marks += __popc(bitmap[w]);
  int pages, rejected = 0;
  int rank = prefix(marks, sums, pages);
  for (int w = first; w < first + per_thread && w < args.words; ++w) {
    ranks[w] = rank;
    rank += __popc(bitmap[w]);
  }
  __syncthreads();
  int* const out = args.out + m * kWidth;
  if (page >= 0) out[ranks[block >> 5] + __popc(bitmap[block >> 5] & ((1u << (block & 31)) - 1u))] = page;
  // The open block is later than every complete one: it comes last, with the row's own residue.
  const int tail_tokens = static_cast<int>(next & 3);
  const bool tail_fits = tail_tokens && (next >> 2) < 2147483647ll;
  const int tail_page = tail_fits ? locate(args, request, static_cast<int>(next >> 2)) : -1;
  for (int i = thread; i <= kBlocks; i += kThreads)
    if (i >= pages) out[i] = i == pages ? tail_page : -1;
  if (thread == 0) {
    for (int w = 0; w < kWarps; ++w) rejected += rejects[w];
    const bool tail = tail_page >= 0;
    out[kPagesColumn] = pages + (tail ? 1 : 0);
    out[kTailColumn] = tail ? tail_tokens : 0;
    out[kRejectedColumn] = rejected + (tail_tokens && !tail ? 1 : 0);
  }
}

}  // namespace qsa_page4
}  // namespace ks

KS_ENTRY(ks_qsa_page4, ks::qsa_page4::kThreads, ks::qsa_page4::Args, ks::qsa_page4::run)
