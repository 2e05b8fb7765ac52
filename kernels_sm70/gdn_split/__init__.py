# SPDX-License-Identifier: Apache-2.0
"""GDN split copy: the two fused input projections of a gated delta net, to separate tensors, in
one launch.

Contract (ks_gdn_split)
  inputs      qkvz [M, Q + Z] 16-bit, inner stride 1, rows and base 16-byte aligned, row stride >=
  width;
              ba [M, 2 B] 16-bit, inner stride 1, rows and base 8-byte aligned
              (per rank of four: Q 2560, Z 1536, B 12; unsharded: 10240, 6144, 48)
  outputs     qkv [M, Q] (four-output form only), z [M, Z], b [M, B], a [M, B]; packed, newly
  allocated
  shapes      1 <= M <= 2^31 - 1; Q and Z multiples of 8; B a multiple of 4, 2 B / 4 <= 128
  aliasing    no output overlaps an input or another output
  arithmetic  none: payloads of 16 bits are moved, NaN payloads included; bit-exact on every
  architecture
  order       none
  floor       each moved payload read once and written once: 4 M (Q + Z + 2 B) bytes; 4 M (Z + 2 B)
              in the form that leaves q|k|v a view of its input
Outside it the operation raises ContractError; the plugin's route counts a fallback instead.
"""

from kernels_sm70.contract import KernelSpec


def floor_bytes(
    rows: int, *, with_qkv: bool, qkv: int = 2560, z: int = 1536, half: int = 12
) -> int:
    """Bytes the copy must move: every payload read once and written once."""
    return 4 * rows * ((qkv if with_qkv else 0) + z + 2 * half)


KERNELS = (
    KernelSpec(
        entry="ks_gdn_split",
        operation="gdn_split",
        storage="any 16-bit",
        threads=128,
        matrix=False,
        floor_bytes={f"M{m}": floor_bytes(m, with_qkv=True) for m in (4, 8, 16)},
    ),
)
