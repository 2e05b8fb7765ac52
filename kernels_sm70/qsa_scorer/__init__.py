# SPDX-License-Identifier: Apache-2.0
"""QSA block scorer of a decode batch: relu dot products of index queries and compressed keys.

Contract (ks_qsa_score_*, ks_qsa_score_stride_*, ks_qsa_score_capacity_*)
  inputs      q [M, 4, 128] S, row M = request * L + step, L query rows a request; strides of rows
              and heads keep 16 bytes, inner stride 1; S is fp16, or bf16 where the architecture has
              it; keys [N, Pk, 128] S (or [N, Pk, 1, 128]), Pk keys a page, rows 16-byte aligned;
              page_table [R, W] int32, inner stride 1; visible [M] int32
  output      scores [M, W * Pk] float32, rows may be strided: for c < min(visible[m], W * Pk)
              score[m, c] = sum over the 4 heads of relu(q[m, h] . k[c]); the rest is NOT written
  missing     a key whose page is outside [0, N) scores -1, below every real score (those are >= 0)
  NaN         a NaN product stays NaN
  shapes      1 <= R <= 1024, 1 <= L <= 16, M = R * L, W * Pk <= 2^31 - 33
  aliasing    scores overlaps no input
  rounding    none: float32 throughout
  order       a product over 128: the matrix atom's order; heads: ((r0 + r1) + r2) + r3.
              A score depends on its key's payload alone: relocating pages changes no bit
  grid        live: the blocks are min(capacity, 3 a multiprocessor), whatever the context; warps
              share the live 32-key units of all requests evenly. stride and capacity (with group
              1 or 4) are kept for their numbers
  floor       live keys once (256 bytes each), their scores, q
Outside it the operation raises ContractError; a plugin's route counts a fallback instead.
"""

from kernels_sm70.contract import KernelSpec

HEADS, DIM, RATIO, UNIT_KEYS = 4, 128, 4, 32
REQUESTS_MAX, ROWS_PER_REQUEST_MAX = 1024, 16


def floor_bytes(requests: int, context: int, *, rows_per_request: int = 1) -> int:
    """Bytes of scoring `requests` requests of `context` tokens each."""
    keys, rows = context // RATIO, requests * rows_per_request
    return requests * keys * 2 * DIM + 4 * rows * keys + 2 * rows * HEADS * DIM


KERNELS = tuple(
    KernelSpec(
        entry=f"ks_qsa_score_{schedule}{storage}",
        operation="qsa_scorer",
        storage=storage,
        threads=128,
        matrix=True,
        floor_bytes={
            f"M{m} {name}": floor_bytes(m, context)
            for m in (4, 8, 16)
            for name, context in (("8K", 8192), ("128K", 131072), ("256K", 262144))
        },
        arches=("sm_90",) if storage == "bf16" else ("sm_70", "sm_90"),
    )
    for storage in ("fp16", "bf16")
    for schedule in ("", "stride_", "capacity_")
)
SPECS = {spec.entry: spec for spec in KERNELS}
