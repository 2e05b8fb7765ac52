# SPDX-License-Identifier: Apache-2.0
"""The torch operation kernels_sm70::qsa_attention, over the list of kernels_sm70::qsa_page4."""

from __future__ import annotations

import torch

from kernels_sm70 import counters, library
from kernels_sm70.qsa_attention import launch, reference
from kernels_sm70.qsa_attention.launch import Inputs

HIT = "qsa_attention.hit"
ROUTES = (HIT,)


def _inputs(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor, pages: torch.Tensor
) -> Inputs:
    inputs = Inputs(q, launch.flat_cache(k), launch.flat_cache(v), gate, pages)
    launch.check(inputs)
    return inputs


def _cuda(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor, pages: torch.Tensor
) -> torch.Tensor:
    inputs = _inputs(q, k, v, gate, pages)
    hits = counters.row(HIT, q.device).data_ptr()
    return launch.run(inputs, launch.allocate(inputs), hits=hits)


def _cpu(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor, pages: torch.Tensor
) -> torch.Tensor:
    made = _inputs(q, k, v, gate, pages)
    counters.count(HIT, q.shape[0], q.device)
    found = reference.attention(made.q, made.k, made.v, made.gate, made.pages, storage=q.dtype)
    return found.to(q.dtype)


def _fake(q: torch.Tensor, *_: object) -> torch.Tensor:
    return q.new_empty(q.shape)


library.define(
    "qsa_attention(Tensor q, Tensor k, Tensor v, Tensor gate, Tensor pages) -> Tensor",
    cuda=_cuda,
    cpu=_cpu,
    fake=_fake,
)
