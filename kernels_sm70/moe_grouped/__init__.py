# SPDX-License-Identifier: Apache-2.0
"""Grouped MoE for decode: routes packed <= 8 to a group by expert, W13, W2, fixed-slot-order sum.

Contract (ks_moe_plan, ks_moe_w13_*, ks_moe_w2_*, ks_moe_reduce_*)
  inputs      x [M, 2560] S, inner stride 1, rows 16-byte aligned; S is fp16, or bf16 where the
              architecture has it; topk_ids [M, K] int32 and topk_weights [M, K] float32, packed
  experts     plain:  w13 [E, 2 I, 2560] S (rows 0..I-1 gate, then up), w2 [E, 2560, I] S
              NVFP4:  w13 [E, 2 I, 1280] uint8 (low nibble = even k), w2 [E, 2560, I / 2] uint8,
              w13_scale [E, 2 I, 160] and w2_scale [E, 2560, I / 16] e4m3 (one for 16 k),
              w13_global [E, 2] (gate, up) and w2_global [E] float32;
              `prepare` refuses scales that are not finite
              packed, weights 16-byte aligned; I is 160 a rank of four, or any multiple of 160
  output      y [M, 2560] S
  shapes      1 <= M * K <= 1024 routes (256 where W13 plans for itself); E <= 1024
  dropped     an id outside [0, E) adds nothing; plan[2] counts them
  aliasing    none
  rounding    f() to S, all else float32:
              h = f(g * sum_k x[k] W[n, k]), the weights e2m1 * e4m3 exact in S
              a = f(silu(h_gate) * h_up), silu(h) = h / (1 + exp(-h)) not rounded by itself
              o = f(g * sum_i a[i] W2[n, i])
              y = f(sum over slots)
  order       h: k inside the matrix atom as mma.cuh says, then the K parts in warp order;
              o: the atom's order;
              y: slots 0..K-1, acc = fma(weight, o, acc) from 0: bit-exact on every architecture
  floor       each chosen expert's bytes once (NVFP4 691,200 at I = 160; plain 2,457,600), x, y
              and the routing
Outside it the operation raises ContractError; a plugin's route counts a fallback instead.
"""

from kernels_sm70.contract import KernelSpec

HIDDEN, GROUP_ROUTES, PLAN_HEADER, PLAN_GROUP = 2560, 8, 8, 12
MAX_ROUTES, INLINE_ROUTES, MAX_EXPERTS, PASS = 1024, 256, 1024, 160
EXPERTS, TOP_K, INTERMEDIATE = 512, 10, 160


def expected_experts(rows: int, experts: int = EXPERTS, top_k: int = TOP_K) -> float:
    """Distinct experts that `rows` tokens choose, in expectation, when every choice is equally
    likely."""
    return experts * (1.0 - (1.0 - top_k / experts) ** rows)


def expert_bytes(kind: str, part: str, intermediate: int = INTERMEDIATE) -> int:
    """Bytes of one expert's "w13" or "w2" with its block scales; `kind` is "nvfp4" or "plain"."""
    values = HIDDEN * intermediate * (2 if part == "w13" else 1)
    return values // 2 + values // 16 if kind == "nvfp4" else 2 * values


def floor_bytes(rows: int, *, kind: str, distinct: float, top_k: int = TOP_K) -> int:
    """Bytes of the whole operation: the chosen experts once, x, y, ids and weights."""
    weights = distinct * (expert_bytes(kind, "w13") + expert_bytes(kind, "w2"))
    return round(weights) + rows * (4 * HIDDEN + 8 * top_k)


def _kernel_floor(name: str, kind: str, rows: int) -> int:
    routes, distinct = rows * TOP_K, expected_experts(rows)
    activation, routed = 2 * routes * INTERMEDIATE, 2 * routes * HIDDEN
    if name == "plan":
        return 4 * routes + 4 * (PLAN_HEADER + PLAN_GROUP * round(distinct))
    if name == "reduce":
        return routed + 2 * rows * HIDDEN + 8 * routes
    if name.startswith("w13"):
        return round(distinct * expert_bytes(kind, "w13")) + 2 * rows * HIDDEN + activation
    summed = 2 * rows * HIDDEN if "reduce" in name else 0
    return round(distinct * expert_bytes(kind, "w2")) + activation + routed + summed


def _spec(name: str, kind: str, storage: str, *, threads: int = 128) -> KernelSpec:
    parts = ["ks_moe", name, *([kind] if kind else []), *([storage] if storage else [])]
    return KernelSpec(
        entry="_".join(parts),
        operation="moe_grouped",
        storage=storage or "int32",
        threads=threads,
        matrix=name.startswith("w"),
        floor_bytes={f"M{m}": _kernel_floor(name, kind, m) for m in (4, 8, 16)},
        arches=("sm_90",) if storage == "bf16" else ("sm_70", "sm_90"),
    )


MATRIX_KERNELS = ("w13", "w13_inline", "w13_split2", "w2", "w2_reduce")
KERNELS = (
    _spec("plan", "", "", threads=256),
    *(
        spec
        for storage in ("fp16", "bf16")
        for spec in (
            *(_spec(name, kind, storage) for kind in ("nvfp4", "plain") for name in MATRIX_KERNELS),
            _spec("reduce", "", storage, threads=160),
        )
    ),
)
SPECS = {spec.entry: spec for spec in KERNELS}
