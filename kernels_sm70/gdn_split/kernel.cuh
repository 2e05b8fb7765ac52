// SPDX-License-Identifier: Apache-2.0
// Split the fused GDN input projections into q|k|v, z, b and a: 16-bit payloads moved, never read as numbers.
// The contract is in this folder's __init__.py.
#include "../common/memory.cuh"

namespace ks {
namespace gdn_split {

constexpr int kThreads = 128;

struct Args {
  const Payload* qkvz;  // [rows, 8 * (qkv_vectors + z_vectors)], row stride qkvz_stride
  const Payload* ba;    // [rows, 8 * half_vectors], row stride ba_stride: b then a
  Payload* qkv;         // [rows, 8 * qkv_vectors] packed, or null: the caller keeps a view
  Payload* z;           // [rows, 8 * z_vectors] packed
  Payload* b;           // [rows, 4 * half_vectors] packed
  Payload* a;           // [rows, 4 * half_vectors] packed
  unsigned long long* hits;
  long long rows;
  long long qkvz_stride;  // elements
  long long ba_stride;    // elements
  int qkv_vectors;        // 16-byte vectors of a row's q|k|v
  int z_vectors;
  int half_vectors;  // 8-byte vectors of a row's b, and of its a
  int reserved;
};

// Block (row, chunk): one 16-byte vector a thread; the first threads of chunk 0 also move b and a.
KS_DEVICE void run(const Args& args) {
  wait_for_predecessor();
  release_successor();
  count_route(args.hits, static_cast<int>(args.rows < 1024 ? args.rows : 1024));
  const long long row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  const int first = args.qkv == nullptr ? args.qkv_vectors : 0;
  const int vector = first + static_cast<int>(blockIdx.y) * kThreads + thread;
  const bool moves_half = blockIdx.y == 0 && thread < 2 * args.half_vectors;

  uint2 half;
  half.x = half.y = 0u;
  if (moves_half) half = load8(args.ba + row * args.ba_stride + 4 * thread);
  if (vector < args.qkv_vectors + args.z_vectors) {
    const uint4 payload = load16(args.qkvz + row * args.qkvz_stride + 8ll * vector);
    if (vector < args.qkv_vectors) {
      store16(args.qkv + 8ll * (row * args.qkv_vectors + vector), payload);
    } else {
      store16(args.z + 8ll * (row * args.z_vectors + vector - args.qkv_vectors), payload);
    }
  }
  if (moves_half) {
    Payload* const out = thread < args.half_vectors ? args.b : args.a;
    const int slot = thread < args.half_vectors ? thread : thread - args.half_vectors;
    store8(out + 4ll * (row * args.half_vectors + slot), half);
  }
}

}  // namespace gdn_split
}  // namespace ks

KS_ENTRY(ks_gdn_split, ks::gdn_split::kThreads, ks::gdn_split::Args, ks::gdn_split::run)
