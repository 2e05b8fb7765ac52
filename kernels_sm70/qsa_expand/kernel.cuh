// SPDX-License-Identifier: Apache-2.0
// Selected 4-token blocks -> token indices, then the row's own causal tail, then -1; the last column is the count.
// Integer work: the same bits on every architecture. The contract is in this folder's __init__.py.
#include "../common/memory.cuh"

namespace ks {
namespace qsa_expand {

constexpr int kBlocks = 512;              // selected blocks of a row
constexpr int kWidth = 4 * kBlocks + 4;   // 2048 expanded + 3 tail + 1 count
constexpr int kVectors = kWidth / 4;
constexpr int kThreads = 128;
constexpr int kLargestBlock = (2147483647 - 3) / 4;  // 4 * block + 3 must fit an int

struct Args {
  const int* blocks;     // [M, 512], row stride blocks_stride
  const void* positions; // [M] int32, or int64 when wide_positions; below 0: a padded row
  const int* visible;    // [M]: complete blocks this row may see
  int* out;              // [M, 2052], row stride out_stride
  unsigned long long* hits;
  unsigned long long* rejected;  // counts rows whose position does not fit int32, or null
  long long blocks_stride;  // elements
  long long out_stride;     // elements
  int rows;
  int wide_positions;
};

struct Row {
  int complete;    // selected blocks, at most 512
  int tail_start;  // first token of the row's open block
  int tail;        // 0..3 tokens of it up to the row's own position
};

constexpr long long kLargestPosition = 2147483647ll - 1;

KS_DEVICE long long position_of(const Args& args, long long row) {
  return args.wide_positions ? static_cast<const long long*>(args.positions)[row]
                             : static_cast<const int*>(args.positions)[row];
}

// A row beyond int32 becomes an empty row; the caller counts it.
KS_DEVICE Row describe(long long position, int visible) {
  Row row;
  if (position > kLargestPosition) position = visible = -1;
  const unsigned next = position < 0 ? 0u : static_cast<unsigned>(position) + 1u;
  row.complete = visible < 0 ? 0 : (visible < kBlocks ? visible : kBlocks);
  row.tail = static_cast<int>(next & 3u);
  row.tail_start = static_cast<int>(next - (next & 3u));
  return row;
}

// Columns 4v .. 4v+3 of a row.
KS_DEVICE void fill(const Row& row, int block, int v, int (&out)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (v < row.complete) {
      out[i] = block < 0 || block > kLargestBlock ? -1 : 4 * block + i;
    } else {
      out[i] = v == row.complete && i < row.tail ? row.tail_start + i : -1;
    }
  }
  if (v == kVectors - 1) out[3] = 4 * row.complete + row.tail;
}

// Block (row, chunk of 128 vectors). Everything a thread needs is loaded before anything is used: one memory latency.
template <bool kVector>
KS_DEVICE void run(const Args& args) {
  wait_for_predecessor();
  release_successor();
  count_route(args.hits, args.rows);
  const long long m = blockIdx.x;
  const int v = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  if (v >= kVectors) return;
  const int block = v < kBlocks ? args.blocks[m * args.blocks_stride + v] : -1;
  const long long position = position_of(args, m);
  const Row row = describe(position, args.visible[m]);
  if (v == 0 && position > kLargestPosition && args.rejected != nullptr) atomicAdd(args.rejected, 1ull);
  int token[4];
  fill(row, block, v, token);
  int* const to = args.out + m * args.out_stride + 4 * v;
  if (kVector) {
    uint4 quad;
    quad.x = static_cast<unsigned>(token[0]);
    quad.y = static_cast<unsigned>(token[1]);
    quad.z = static_cast<unsigned>(token[2]);
    quad.w = static_cast<unsigned>(token[3]);
    store16(to, quad);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = token[i];
  }
}

}  // namespace qsa_expand
}  // namespace ks

KS_ENTRY(ks_qsa_expand, ks::qsa_expand::kThreads, ks::qsa_expand::Args, ks::qsa_expand::run<true>)
// Rows that are not 16-byte aligned: a view inside a wider buffer.
KS_ENTRY(ks_qsa_expand_unaligned, ks::qsa_expand::kThreads, ks::qsa_expand::Args, ks::qsa_expand::run<false>)
