# SPDX-License-Identifier: Apache-2.0
"""QSA block index expansion: selected 4-token blocks to token indices with the row's causal tail.

Contract (ks_qsa_expand, ks_qsa_expand_unaligned)
  inputs      blocks [M, 512] int32, inner stride 1; positions [M] int32 or int64, below 0 for a
              padded row; visible [M] int32, the complete blocks the row may see
  output      out [M, 2052] int32, inner stride 1, rows may be strided:
              n = min(max(visible, 0), 512); columns j < 4 n: 4 * blocks[j / 4] + j % 4;
              then the tail 4 * ((pos + 1) / 4) .. pos, which is (pos + 1) % 4 tokens of the row's
              OWN position; then -1; column 2051: 4 n + tail
  shapes      1 <= M <= 2^31 - 1
  not indices a block below 0, or so large that a token of it exceeds int32, gives -1
  beyond      a position above 2^31 - 2 gives an empty row (all -1, count 0), counted under
              qsa_expand.rejected
  alignment   16 bytes for base and rows of out (ks_qsa_expand), else ks_qsa_expand_unaligned
  aliasing    out overlaps no input
  arithmetic  int32; bit-exact on every architecture
  order       none
  floor       4 M (512 + 2052) bytes, positions and visible: 4 (or 8) M + 4 M
Outside it the operation raises ContractError; a plugin's route counts a fallback instead.
"""

from kernels_sm70.contract import KernelSpec

BLOCKS, RATIO = 512, 4
WIDTH = BLOCKS * RATIO + RATIO


def floor_bytes(rows: int) -> int:
    """Bytes the expansion must move, with int64 positions."""
    return rows * (4 * (BLOCKS + WIDTH) + 8 + 4)


KERNELS = tuple(
    KernelSpec(
        entry=entry,
        operation="qsa_expand",
        storage="int32",
        threads=128,
        matrix=False,
        floor_bytes={f"M{m}": floor_bytes(m) for m in (4, 8, 16)},
    )
    for entry in ("ks_qsa_expand", "ks_qsa_expand_unaligned")
)
