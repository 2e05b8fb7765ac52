# SPDX-License-Identifier: Apache-2.0
"""QSA page list: selected blocks to physical 4-token pages in ascending logical order.

Contract (ks_qsa_page4)
  inputs      blocks [M, 512] int32 (distinct within a row, any order), inner stride 1;
              positions [M] int32 or int64, below 0 for a padded row; visible [M] int32;
              requests [M] int32: each row's row of block_table [R, W] int32, inner stride 1;
              P tokens a KV page, a multiple of 4; N pages in the KV cache
  output      out [M, 516] int32: the pages of min(max(visible, 0), 512) blocks in ascending LOGICAL
              order, then the page of the open block if the row's own residue (pos + 1) % 4 is not
              zero, then -1 up to column 512; column 513: pages; 514: tokens of the open page, or 0;
              515: entries rejected
              page of block b: block_table[request, 4 b / P] * (P / 4) + b % (P / 4)
  rejected    a block below 0, or past the table, or whose table entry is outside [0, N)
  shapes      1 <= M <= 2^31 - 1; W * P / 4 <= 131072 blocks, which covers 512K tokens (the bitmap
              and its ranks take 8 bytes of shared memory for 32 blocks)
  relocation  moving KV pages changes the values but neither their order nor their number
  aliasing    out overlaps no input
  arithmetic  int32; bit-exact on every architecture
  order       none: a rank is a count of smaller blocks
  floor       4 M (512 + 513 + 516) + 16 M bytes: blocks, table entries, the list, the row's words
Outside it the operation raises ContractError; a plugin's route counts a fallback instead.
"""

from kernels_sm70.contract import KernelSpec

BLOCKS, RATIO = 512, 4
WIDTH, PAGES_COLUMN, TAIL_COLUMN, REJECTED_COLUMN = 516, 513, 514, 515
BLOCKS_MAX = 131072


def bitmap_words(table_width: int, page_tokens: int) -> int:
    """32-bit words of the bitmap over all logical blocks, a multiple of 4 with one to spare."""
    blocks = table_width * page_tokens // RATIO
    return -(-(blocks // 32 + 1) // 4) * 4


def floor_bytes(rows: int) -> int:
    """Bytes the list must move."""
    return rows * (4 * (BLOCKS + BLOCKS + 1 + WIDTH) + 16)


KERNELS = (
    KernelSpec(
        entry="ks_qsa_page4",
        operation="qsa_page4",
        storage="int32",
        threads=512,
        matrix=False,
        floor_bytes={f"M{m}": floor_bytes(m) for m in (4, 8, 16)},
        # A 256K context; launches take what their table needs.
        dynamic_shared_bytes=8 * bitmap_words(16384, 16),
    ),
)
