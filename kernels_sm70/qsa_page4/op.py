# SPDX-License-Identifier: Apache-2.0
"""The torch operation kernels_sm70::qsa_page4. It has no counterpart in vLLM: nothing to fall back
to."""

from __future__ import annotations

import torch

from kernels_sm70 import counters, library
from kernels_sm70.qsa_page4 import WIDTH, launch, reference
from kernels_sm70.qsa_page4.launch import Inputs

HIT = "qsa_page4.hit"
ROUTES = (HIT,)


def _cuda(
    blocks: torch.Tensor,
    positions: torch.Tensor,
    visible: torch.Tensor,
    requests: torch.Tensor,
    block_table: torch.Tensor,
    page_tokens: int,
    physical_pages: int,
) -> torch.Tensor:
    inputs = Inputs(blocks, positions, visible, requests, block_table, page_tokens, physical_pages)
    out = _fake(blocks)
    launch.check(inputs, out)
    return launch.run(inputs, out, hits=counters.row(HIT, blocks.device).data_ptr())


def _cpu(
    blocks: torch.Tensor,
    positions: torch.Tensor,
    visible: torch.Tensor,
    requests: torch.Tensor,
    block_table: torch.Tensor,
    page_tokens: int,
    physical_pages: int,
) -> torch.Tensor:
    inputs = Inputs(blocks, positions, visible, requests, block_table, page_tokens, physical_pages)
    launch.check(inputs, _fake(blocks))
    counters.count(HIT, blocks.shape[0], blocks.device)
    return reference.pages(
        blocks,
        positions,
        visible,
        requests,
        block_table,
        page_tokens=page_tokens,
        physical_pages=physical_pages,
    )


def _fake(blocks: torch.Tensor, *_: object) -> torch.Tensor:
    return blocks.new_empty((blocks.shape[0], WIDTH), dtype=torch.int32)


library.define(
    "qsa_page4(Tensor blocks, Tensor positions, Tensor visible, Tensor requests, "
    "Tensor block_table, int page_tokens, int physical_pages) -> Tensor",
    cuda=_cuda,
    cpu=_cpu,
    fake=_fake,
)
