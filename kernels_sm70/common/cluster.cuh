// SPDX-License-Identifier: Apache-2.0
// Thread-block clusters (sm_90): blocks push floats into each other's shared memory; the receiver waits for the bytes.
#pragma once
#include "memory.cuh"

#define KS_HAS_CLUSTERS (KS_ARCH >= 900)

#if KS_HAS_CLUSTERS
namespace ks {

#if KS_ON_GPU
KS_DEVICE unsigned shared_address(const void* mine) { return static_cast<unsigned>(__cvta_generic_to_shared(mine)); }
KS_DEVICE unsigned address_in_rank(unsigned address, int rank) {
  unsigned remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
#endif

// By all threads, first of all: this block will receive `bytes` through `inbox` (a shared 64-bit word).
KS_DEVICE void open_inbox(unsigned long long* inbox, unsigned bytes) {
#if KS_ON_GPU
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(inbox)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(inbox)), "r"(bytes)
                 : "memory");
  }
  __syncwarp();
#else
  if (threadIdx.x == 0) *inbox = bytes;
#endif
}

// Between open_inbox and the first push: every block of the cluster has opened its inbox. Split, so that work fits between.
KS_DEVICE void arrive_open() {
#if KS_ON_GPU
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
  emu::cluster_arrive();
#endif
}
KS_DEVICE void wait_all_open() {
#if KS_ON_GPU
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  emu::cluster_wait();
#endif
}

// Write `value` to the variable `slot` of block `rank`, and count its four bytes in that block's `inbox`.
KS_DEVICE void push(float* slot, int rank, float value, unsigned long long* inbox) {
#if KS_ON_GPU
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                   address_in_rank(shared_address(slot), rank)),
               "r"(bits_of_float(value)), "r"(address_in_rank(shared_address(inbox), rank))
               : "memory");
#else
  emu::push(slot, static_cast<unsigned>(rank), value, inbox);
#endif
}

// By all threads that read: all bytes have arrived. A block may leave after this; nobody will write to it any more.
KS_DEVICE void wait_inbox(const unsigned long long* inbox) {
#if KS_ON_GPU
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "wait_for_bytes:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra wait_for_bytes;\n"
      "}\n" ::"r"(shared_address(inbox))
      : "memory");
#else
  emu::wait_inbox(inbox);
#endif
}

}  // namespace ks
#endif
