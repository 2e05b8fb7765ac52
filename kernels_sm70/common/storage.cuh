// SPDX-License-Identifier: Apache-2.0
// Storage types as traits over their 16-bit payload: Fp16 and Bf16. Arithmetic happens in float; `round` is the f() of
// every contract block: nearest even to the storage type.
#pragma once
#include "entry.cuh"

namespace ks {

typedef unsigned short Payload;  // 16 bits, never interpreted by copies

KS_DEVICE float float_from_bits(unsigned bits) {
#if KS_ON_GPU
  return __uint_as_float(bits);
#else
  return emu::bit_cast<float>(bits);
#endif
}

KS_DEVICE unsigned bits_of_float(float value) {
#if KS_ON_GPU
  return __float_as_uint(value);
#else
  return emu::bit_cast<unsigned>(value);
#endif
}

struct Fp16 {
  static constexpr bool kIsBf16 = false;

  KS_DEVICE static float to_float(Payload bits) {
#if KS_ON_GPU
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    return emu::fp16_to_float(bits);
#endif
  }

  KS_DEVICE static Payload from_float(float value) {
#if KS_ON_GPU
    Payload bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    return emu::fp16_from_float(value);
#endif
  }
};

struct Bf16 {
  static constexpr bool kIsBf16 = true;

  KS_DEVICE static float to_float(Payload bits) { return float_from_bits(static_cast<unsigned>(bits) << 16); }

  KS_DEVICE static Payload from_float(float value) {
#if KS_ON_GPU && KS_ARCH >= 800
    Payload bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const unsigned bits = bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<Payload>(0x7fff);  // the canonical NaN of cvt.rn
    return static_cast<Payload>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
  }
};

// f(value), kept as a float.
template <class S>
KS_DEVICE float round_to(float value) {
  return S::to_float(S::from_float(value));
}

// Two payloads in a 32-bit word, low half first.
template <class S>
KS_DEVICE float low_of(unsigned word) {
  return S::to_float(static_cast<Payload>(word & 0xffffu));
}
template <class S>
KS_DEVICE float high_of(unsigned word) {
  return S::to_float(static_cast<Payload>(word >> 16));
}
template <class S>
KS_DEVICE unsigned pack(float low, float high) {
  return static_cast<unsigned>(S::from_float(low)) | (static_cast<unsigned>(S::from_float(high)) << 16);
}

// Eight payloads of a 16-byte vector <-> eight floats.
template <class S>
KS_DEVICE void unpack8(const uint4& v, float (&out)[8]) {
  const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = low_of<S>(words[i]);
    out[2 * i + 1] = high_of<S>(words[i]);
  }
}
template <class S>
KS_DEVICE uint4 pack8(const float (&in)[8]) {
  uint4 v;
  v.x = pack<S>(in[0], in[1]);
  v.y = pack<S>(in[2], in[3]);
  v.z = pack<S>(in[4], in[5]);
  v.w = pack<S>(in[6], in[7]);
  return v;
}

// Logistic function in float; saturates to 0 and 1 without a NaN for any finite or infinite input.
KS_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

}  // namespace ks
