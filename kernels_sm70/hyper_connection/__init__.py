# SPDX-License-Identifier: Apache-2.0
"""Gated hyper-connections (GatedResidual) for small batches: three kernels that make one layer
boundary.

f() rounds to the storage type S (fp16, or bf16 where the architecture has it), to nearest even; all
else is float32. H hidden, D = 4 H, r low rank, s = 0..3 streams; R is stored stream-outer [M, 4,
H].

combine_norm (ks_hc_combine_norm_*)   block (stream, row)
  inputs    R [M, D], B [M, H] or none, J [M, 4] logits or none, w [D] or [H]
  outputs   R' = f(R + B * 2 sigmoid(J / 4)), the product fused into the sum; J none: R + B; B
  none: R itself
            xn = f(y + y w), y = R' rsqrt(mean_h(R'^2) + eps) per stream, from the rounded R'
  order     eight squares of a lane ascending, butterfly over the warp, ten warps ascending
down (ks_hc_down_*, ks_hc_down_clustered_*)   block (slice of 1280 k, 16 weight rows)
  inputs    xn [M, D] packed, Wd [>= r + n_inj, D] packed; rows past r + n_inj are padding and
  never read
  outputs   P = f(xn Wd^T); lora [M, r] = f(t sigmoid(t)), t = P / 4; J' [M, n_inj] = P[:, r:]
  order     matrix atom over 160 k, eight warps ascending, slices ascending; both forms alike
combine_down (ks_hc_combine_down1_*, ks_hc_combine_down2_*)   both in one launch, H = 2560, sm_90
  a cluster of eight blocks holds a row, two blocks a stream; squares: 40 of a lane ascending, four
  lanes by butterfly, eight warps ascending, two blocks ascending; else as above
up_mix (ks_hc_up_mix_*)   block of 16 columns
  inputs    lora [M, r], Wu [4, C, r] packed (C = H, or this rank's columns of every stream), xn
  outputs   G = f(lora Wu^T); mixed [M, C] = f((sum_s sigmoid(G_s) xn_s) / 4), s ascending, fused
  multiply-adds
  order     matrix atom over r: even steps of 32, odd steps, their sum (Volta: ascending);
            streams ascending
shapes      1 <= M <= 24; H a multiple of 16 up to 2560; r a multiple of 32 up to 320; C a multiple
of 16; D < 2^31
alignment   bases and rows 16 bytes; J, outputs of down and mixed: 2 bytes
aliasing    no output overlaps an input; weights are read before the previous kernel of the stream
ends (sm_90), so they
            must not be written by the work enqueued immediately before
floor       combine_norm 2 (2 D + H + 4) M + 2 (D M + D) ; down 2 (r + 4) D + 2 M (D + r + 4);
            up_mix 2 r D + 2 M (r + D + H); whole: their sum less the second reading of xn, lora
            never leaving L2
Sharding the up projection: each rank holds Wu[:, columns of rank, :] packed
(weights.prepare_up_shard keeps its address
on reload) and writes its own columns of `mixed`; pieces are gathered side by side, never summed.
The down projection can
be read as a zero-copy row view of the replicated weight (weights.down_view).
Outside it the operations raise ContractError; op.route decides from shapes and counts the fallback.
"""

from kernels_sm70.contract import KernelSpec

NORM_THREADS, DOWN_THREADS, UP_THREADS = 320, 256, 128
DOWN_SLICE, CLUSTER = 1280, 8
ROWS_MAX, HIDDEN_MAX, RANK_MAX = 24, 2560, 320
TILES = (1, 2, 3)
HIDDEN, RANK, STREAMS = 2560, 320, 4


def floor_norm(rows: int, hidden: int = HIDDEN) -> int:
    """Bytes of combine + norm: R, B, J and w read, R' and xn written."""
    depth = STREAMS * hidden
    return 2 * (rows * (depth + hidden + STREAMS + 2 * depth) + depth)


def floor_down(rows: int, hidden: int = HIDDEN, rank: int = RANK) -> int:
    """Bytes of down + inject: 324 weight rows and xn read, lora and J written."""
    depth, outputs = STREAMS * hidden, rank + STREAMS
    return 2 * (outputs * depth + rows * (depth + outputs))


def floor_combine_down(rows: int) -> int:
    """Bytes of combine + norm + down in one launch: as the two, less reading xn back."""
    return floor_norm(rows) + floor_down(rows) - 2 * rows * STREAMS * HIDDEN


def floor_up(rows: int, columns: int = HIDDEN, rank: int = RANK) -> int:
    """Bytes of up + mix for `columns` of each stream: Wu, lora and xn read, the mix written."""
    depth = STREAMS * columns
    return 2 * (rank * depth + rows * (rank + depth + columns))


def floor_whole(rows: int) -> int:
    """Bytes of the three kernels together."""
    return floor_norm(rows) + floor_down(rows) + floor_up(rows)


def down_shared(tiles: int, *, volta: bool) -> int:
    """Dynamic shared memory of the down kernel: staged weights and tokens, or the warps' sums on
    Volta.
    """
    return (
        4 * DOWN_THREADS // 32 * 16 * 8 * tiles if volta else 16 * DOWN_THREADS * (10 + 5 * tiles)
    )


def combine_down_shared(tiles: int, row_tiles: int) -> int:
    """Dynamic shared memory of the one-launch form: staged weights, norm weights and residual."""
    return 16 * DOWN_THREADS * 5 * (2 * row_tiles + 1 + tiles)


def up_shared(tiles: int, *, volta: bool) -> int:
    """Dynamic shared memory of the up kernel: staged weights, or the gates on Volta."""
    return 4 * STREAMS * 16 * 8 * tiles if volta else 16 * UP_THREADS * 20


def _specs(storage: str) -> tuple[KernelSpec, ...]:
    arches = ("sm_70", "sm_90") if storage == "fp16" else ("sm_90",)
    cases = (4, 8, 16)
    norm = KernelSpec(
        f"ks_hc_combine_norm_{storage}",
        "hyper_connection",
        storage,
        NORM_THREADS,
        False,
        {f"M{m}": floor_norm(m) for m in cases},
        arches=arches,
    )
    specs = [norm]
    for tiles in TILES:
        fitting = [m for m in (*cases, 24) if -(-m // 8) == tiles]
        for form, where in (("down", arches), ("down_clustered", ("sm_90",))):
            specs.append(
                KernelSpec(
                    f"ks_hc_{form}_{storage}_t{tiles}",
                    "hyper_connection",
                    storage,
                    DOWN_THREADS,
                    True,
                    {f"M{m}": floor_down(m) for m in fitting},
                    down_shared(tiles, volta=False),
                    down_shared(tiles, volta=True),
                    where,
                )
            )
        for row_tiles in (1, 2):
            specs.append(
                KernelSpec(
                    f"ks_hc_combine_down{row_tiles}_{storage}_t{tiles}",
                    "hyper_connection",
                    storage,
                    DOWN_THREADS,
                    True,
                    {f"M{m}": floor_combine_down(m) for m in fitting},
                    combine_down_shared(tiles, row_tiles),
                    arches=("sm_90",),
                )
            )
        specs.append(
            KernelSpec(
                f"ks_hc_up_mix_{storage}_t{tiles}",
                "hyper_connection",
                storage,
                UP_THREADS,
                True,
                {f"M{m}": floor_up(m) for m in fitting},
                up_shared(tiles, volta=False),
                up_shared(tiles, volta=True),
                arches,
            )
        )
    return tuple(specs)


KERNELS = (*_specs("fp16"), *_specs("bf16"))
SPECS = {spec.entry: spec for spec in KERNELS}
