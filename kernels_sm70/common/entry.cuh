// SPDX-License-Identifier: Apache-2.0
// How a kernel is declared, and the few words whose meaning differs between a GPU and the CPU emulation.
//
// Device sources include nothing from the CUDA toolkit and nothing from torch: NVRTC and nvcc supply threadIdx,
// shuffles and math; g++ gets the same names from host_emulation.hpp, so that CI runs these very files on a CPU.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

#define KS_ON_GPU 1
#define KS_DEVICE __device__ __forceinline__
// A static shared array. The emulation fills it with NaN bytes before every block.
#define KS_SHARED(type, name, count) __shared__ __align__(16) type name[count]
// Dynamic shared memory of the launch, viewed as `type`; its size comes from the launcher.
#define KS_DYNAMIC_SHARED(type, name)                         \
  extern __shared__ __align__(16) unsigned char ks_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(ks_dynamic_shared)
// One extern "C" kernel that passes its Args struct to a device function: KS_ENTRY(name, threads, Args, body<...>).
#define KS_ENTRY(name, threads, ArgsType, ...)                                                           \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ ArgsType args) { \
    __VA_ARGS__(args);                                                                                   \
  }
#if defined(__CUDA_ARCH__)
#define KS_ARCH (__CUDA_ARCH__)
#else
#define KS_ARCH 900  // nvcc's host pass parses the file and emits no device code from it
#endif

#else  // g++

#define KS_ON_GPU 0
#ifndef KS_ARCH
#define KS_ARCH 900
#endif
#include "host_emulation.hpp"

#endif

// Volta's own matrix instruction (m8n8k4). Forcing it on a newer GPU runs it as emulated FMAs: right, slow, never timed.
#if KS_ARCH < 800 || defined(KS_FORCE_VOLTA_ATOM)
#define KS_VOLTA_ATOM 1
#else
#define KS_VOLTA_ATOM 0
#endif
// Entries with bf16 storage are declared under this guard; Volta's matrix instruction has no bf16 form.
#if KS_ARCH >= 800 && !KS_VOLTA_ATOM
#define KS_HAS_BF16 1
#else
#define KS_HAS_BF16 0
#endif
