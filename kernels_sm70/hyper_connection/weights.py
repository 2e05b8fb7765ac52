# SPDX-License-Identifier: Apache-2.0
"""Weights of a sharded hyper-connection: packed up shards with a stable address, zero-copy down
views.
"""

from __future__ import annotations

import torch

from kernels_sm70.contract import refuse

STREAMS = 4
WHERE = "hyper_connection.weights"


def _columns(total: int, ranks: int, what: str) -> int:
    if ranks < 1 or total % ranks or (total // ranks) % 16:
        raise refuse(
            WHERE,
            what=what,
            expected="ranks that leave a multiple of 16 each",
            found=f"{total} over {ranks}",
            remedy="keep the replicated weight",
        )
    return total // ranks


def prepare_up_shard(
    weight: torch.Tensor, *, ranks: int, rank: int, shard: torch.Tensor | None = None
) -> torch.Tensor:
    """Pack this rank's columns of every stream: Wu [4 H, r] -> [4 H / ranks, r].

    Given the shard of an earlier load, it is overwritten in place, so an address that a captured
    graph or a kernel argument holds stays valid across a weight reload.
    """
    hidden = weight.shape[0] // STREAMS
    columns = _columns(hidden, ranks, "hidden size")
    piece = weight.view(STREAMS, hidden, -1)[:, rank * columns : (rank + 1) * columns]
    if shard is None:
        return piece.reshape(STREAMS * columns, -1).clone()
    shard.view(STREAMS, columns, -1).copy_(piece)
    return shard


def down_view(
    weight: torch.Tensor, *, lora_rows: int, injection_rows: int, ranks: int, rank: int
) -> torch.Tensor:
    """This rank's rows of the replicated down weight, without a copy: r / ranks rows; the last rank
    also has the injection rows. No rank reads a row that belongs to another."""
    rows = _columns(lora_rows, ranks, "low rank")
    extra = injection_rows if rank == ranks - 1 else 0
    return weight.narrow(0, rank * rows, rows + extra)


def gather(pieces: list[torch.Tensor]) -> torch.Tensor:
    """Pieces of the columns side by side, in rank order: [M, C] each -> [M, ranks C]. Nothing is
    added.
    """
    return torch.cat(pieces, dim=-1)
