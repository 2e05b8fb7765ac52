# SPDX-License-Identifier: Apache-2.0
"""QSA sparse attention of a decode batch by split KV, over the page list of qsa_page4.

A candidate kept for its numbers, and the consumer that shows what the list's order is for.

Contract (ks_qsa_attention_split_*, ks_qsa_attention_merge_*)
  inputs      q [M, 6, 256] S, strides of rows and heads keep 16 bytes, inner stride 1; S is fp16,
              or
              bf16 where the architecture has it; k and v [N, P, 256] S (or [N, P, 1, 256]), views
              of
              one cache with equal strides that keep 16 bytes; gate [M, 6, 256] S, packed; list
              [M, 516] int32, packed, made by qsa_page4 for the same N and P
  output      out [M, 6, 256] S, packed
  shapes      1 <= M <= 65535; P a multiple of 4; one KV head
  aliasing    none
  rounding    o = f(softmax(q k / 16) v), everything inside float32, p not rounded;
              out = f(o * sigmoid(gate)); a row without tokens gives o = 0
  order       by the list's positions alone: 32 tokens a warp (token order within), the four warps
              of 128 tokens in order, the splits in order. Relocating KV pages changes no bit
  floor       K and V of the listed tokens once (1024 bytes a token), q, gate, out
Outside it the operation raises ContractError.
"""

from kernels_sm70.contract import KernelSpec

HEADS, DIM, SPLITS, SPLIT_TOKENS, TOKENS_MAX = 6, 256, 17, 128, 2051


def floor_bytes(rows: int, *, tokens: int = 2048) -> int:
    """Bytes of attending from `rows` rows to `tokens` tokens each."""
    return rows * (tokens * 4 * DIM + 3 * 2 * HEADS * DIM)


def _spec(name: str, storage: str) -> KernelSpec:
    partial = 4 * SPLITS * HEADS * (DIM + 2)
    return KernelSpec(
        entry=f"ks_qsa_attention_{name}_{storage}",
        operation="qsa_attention",
        storage=storage,
        threads=128 if name == "split" else 64,
        matrix=name == "split",
        floor_bytes={
            f"M{m}": m * (2048 * 4 * DIM + 2 * HEADS * DIM + partial)
            if name == "split"
            else m * (partial + 4 * HEADS * DIM)
            for m in (4, 8, 16)
        },
        arches=("sm_90",) if storage == "bf16" else ("sm_70", "sm_90"),
    )


KERNELS = tuple(_spec(name, storage) for storage in ("fp16", "bf16") for name in ("split", "merge"))
SPECS = {spec.entry: spec for spec in KERNELS}
