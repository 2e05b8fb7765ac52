// SPDX-License-Identifier: Apache-2.0
// Expert weight storage as policies: a policy loads what one lane needs of a weight row and expands 8 k of it to the
// storage type S. `arrange` orders the activations' 8 k alike; a sum over k is indifferent to the order.
#pragma once
#include "../common/mma.cuh"

namespace ks {
namespace moe {

// Two S products at once; exact wherever this file uses it.
template <class S>
KS_DEVICE unsigned multiply_pair(unsigned a, unsigned b) {
#if KS_ON_GPU
  unsigned out;
#if KS_HAS_BF16
  if (S::kIsBf16) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(0x80008000u));
    return out;
  }
#endif
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
#else
  return pack<S>(low_of<S>(a) * low_of<S>(b), high_of<S>(a) * high_of<S>(b));
#endif
}

// (low of a, low of b) and (high of a, high of b): one byte permutation each.
KS_DEVICE unsigned low_halves(unsigned a, unsigned b) {
#if KS_ON_GPU
  return __byte_perm(a, b, 0x5410u);
#else
  return (a & 0xffffu) | (b << 16);
#endif
}
KS_DEVICE unsigned high_halves(unsigned a, unsigned b) {
#if KS_ON_GPU
  return __byte_perm(a, b, 0x7632u);
#else
  return (a >> 16) | (b & 0xffff0000u);
#endif
}

KS_DEVICE unsigned shift_left(unsigned word, int by) { return by >= 0 ? word << by : word >> -by; }

// Rows of S, as stored.
struct Plain {
  static constexpr int kLaneK = 16;         // k of one row a lane takes in one W13 step
  static constexpr int kDepth = 3;          // W13 steps in flight
  static constexpr float kPostScale = 1.0f;
  static constexpr bool kScaled = false;

  struct Chunk {
    uint4 raw[2];
  };
  template <class S>
  KS_DEVICE static Chunk load(const void* weight, const void*, size_t row, int columns, int k) {
    const Payload* at = static_cast<const Payload*>(weight) + row * columns + k;
    Chunk chunk;
    chunk.raw[0] = load16_streamed(at);
    chunk.raw[1] = load16_streamed(at + 8);
    return chunk;
  }
  template <class S>
  KS_DEVICE static void expand(const Chunk& chunk, uint4 (&out)[2]) {
    out[0] = chunk.raw[0];
    out[1] = chunk.raw[1];
  }
  KS_DEVICE static uint4 arrange(const uint4& x) { return x; }

  // One W2 row's fifth of 160 columns: unit i of this lane is columns 8 * unit(i, part) ...
  struct Slice {
    uint4 raw[5];
  };
  KS_DEVICE static int unit(int i, int part) { return 4 * i + part; }
  KS_DEVICE static Slice load_slice(const void* weight, const void*, size_t row, int columns, int k, int part) {
    const Payload* at = static_cast<const Payload*>(weight) + row * columns + k;
    Slice slice;
#pragma unroll
    for (int i = 0; i < 5; ++i) slice.raw[i] = load16_streamed(at + 8 * unit(i, part));
    return slice;
  }
  template <class S>
  KS_DEVICE static void expand_slice(const Slice& slice, uint4 (&out)[5]) {
#pragma unroll
    for (int i = 0; i < 5; ++i) out[i] = slice.raw[i];
  }
};

// NVFP4: e2m1 nibbles (low nibble = even k), an e4m3 scale for 16 k, one float scale for the matrix.
// e2m1 * e4m3 needs 6 bits of mantissa, so it is exact in fp16 and bf16; it is formed scaled by 2^-7, which keeps every
// product inside fp16's range, and the epilogue multiplies the float sum by 2^7 * global scale.
struct Nvfp4 {
  static constexpr int kLaneK = 32;
  static constexpr int kDepth = 5;
  static constexpr float kPostScale = 128.0f;
  static constexpr bool kScaled = true;

  // An e4m3 byte as the pair (s, s) of S: s = e4m3 * 2^7 (fp16) or e4m3 * 2^119 (bf16), to meet `nibbles` below.
  template <class S>
  KS_DEVICE static unsigned scale_pair(unsigned byte) {
    const unsigned sign = (byte & 0x80u) << 8, magnitude = byte & 0x7fu;
    const unsigned payload = sign | (magnitude << (S::kIsBf16 ? 4 : 7));
    const unsigned pair = payload | (payload << 16);
    if (S::kIsBf16) return multiply_pair<S>(multiply_pair<S>(pair, 0x7b807b80u), 0x7b007b00u);  // 2^120, 2^119
    return multiply_pair<S>(pair, 0x78007800u);                                                 // 2^15
  }

  // Nibbles i and i + 4 of a word in S: value e2m1 * 2^-14 (fp16) or * 2^-126 (bf16), subnormals included.
  template <class S>
  KS_DEVICE static unsigned nibbles(unsigned word, int i) {
    const unsigned magnitude = S::kIsBf16 ? 0x01c001c0u : 0x0e000e00u;
    return (shift_left(word, (S::kIsBf16 ? 6 : 9) - 4 * i) & magnitude) | (shift_left(word, 12 - 4 * i) & 0x80008000u);
  }

  // 8 k of one row: pairs (0,4) (1,5) (2,6) (3,7), each times its scale.
  template <class S>
  KS_DEVICE static uint4 expand_word(unsigned word, unsigned scale) {
    uint4 out;
    out.x = multiply_pair<S>(nibbles<S>(word, 0), scale);
    out.y = multiply_pair<S>(nibbles<S>(word, 1), scale);
    out.z = multiply_pair<S>(nibbles<S>(word, 2), scale);
    out.w = multiply_pair<S>(nibbles<S>(word, 3), scale);
    return out;
  }
  KS_DEVICE static uint4 arrange(const uint4& x) {
    uint4 out;
    out.x = low_halves(x.x, x.z);
    out.y = high_halves(x.x, x.z);
    out.z = low_halves(x.y, x.w);
    out.w = high_halves(x.y, x.w);
    return out;
  }

  struct Chunk {
    uint4 raw;
    unsigned scales;  // two bytes
  };
  template <class S>
  KS_DEVICE static Chunk load(const void* weight, const void* scale, size_t row, int columns, int k) {
    Chunk chunk;
    chunk.raw = load16_streamed(static_cast<const unsigned char*>(weight) + row * (columns / 2) + k / 2);
    const unsigned char* at = static_cast<const unsigned char*>(scale) + row * (columns / 16) + k / 16;
    chunk.scales = *reinterpret_cast<const unsigned short*>(at);
    return chunk;
  }
  template <class S>
  KS_DEVICE static void expand(const Chunk& chunk, uint4 (&out)[4]) {
    const unsigned first = scale_pair<S>(chunk.scales & 0xffu), second = scale_pair<S>(chunk.scales >> 8);
    out[0] = expand_word<S>(chunk.raw.x, first);
    out[1] = expand_word<S>(chunk.raw.y, first);
    out[2] = expand_word<S>(chunk.raw.z, second);
    out[3] = expand_word<S>(chunk.raw.w, second);
  }

  // 160 columns are 20 units of 8: units 2p, 2p+1, 8+2p, 9+2p share their scales two by two, the last is 16 + p.
  struct Slice {
    uint2 first, second;
    unsigned last;
    unsigned scales;  // bytes 0..2
  };
  KS_DEVICE static int unit(int i, int part) { return i == 4 ? 16 + part : 8 * (i >> 1) + 2 * part + (i & 1); }
  KS_DEVICE static Slice load_slice(const void* weight, const void* scale, size_t row, int columns, int k, int part) {
    const unsigned char* at = static_cast<const unsigned char*>(weight) + row * (columns / 2) + k / 2;
    const unsigned char* byte = static_cast<const unsigned char*>(scale) + row * (columns / 16) + k / 16;
    Slice slice;
    slice.first = load8(at + 8 * part);
    slice.second = load8(at + 32 + 8 * part);
    slice.last = *reinterpret_cast<const unsigned*>(at + 64 + 4 * part);
    slice.scales = static_cast<unsigned>(byte[part]) | (static_cast<unsigned>(byte[4 + part]) << 8) |
                   (static_cast<unsigned>(byte[8 + (part >> 1)]) << 16);
    return slice;
  }
  template <class S>
  KS_DEVICE static void expand_slice(const Slice& slice, uint4 (&out)[5]) {
    const unsigned a = scale_pair<S>(slice.scales & 0xffu), b = scale_pair<S>((slice.scales >> 8) & 0xffu);
    out[0] = expand_word<S>(slice.first.x, a);
    out[1] = expand_word<S>(slice.first.y, a);
    out[2] = expand_word<S>(slice.second.x, b);
    out[3] = expand_word<S>(slice.second.y, b);
    out[4] = expand_word<S>(slice.last, scale_pair<S>(slice.scales >> 16));
  }
};

}  // namespace moe
}  // namespace ks
