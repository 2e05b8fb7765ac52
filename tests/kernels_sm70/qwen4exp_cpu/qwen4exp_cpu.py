"""A vLLM plugin, for tests only: lets vLLM's CPU build serve a Qwen4Exp without an indexer.

Stock vLLM 0.32 stops on a CPU for three reasons, none of which the kernels are about: the
hyper-connection pieces are Triton kernels (the CPU build has no Triton backend), the model's
module imports a vision tower that wants torchvision, and sparse attention (QSA) refuses every
platform but CUDA. This plugin gives the first a torch implementation with the same rounding
points, the second an empty module for the time of the import, and leaves the third alone: a
model without `indexer_*` settings takes the ordinary attention instead. It also mends one fault of
the CPU build: the convolution refuses a prompt of one token, whose strides PyTorch leaves open.

It is loaded under its own name, beside `kernels_sm70` or without it: so the same stand-ins
serve the stock arm and the flagged ones.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

import torch

_APPLIED = False
_VISION = ("torchvision", "torchvision.transforms", "torchvision.transforms.v2")


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float, groups: int) -> torch.Tensor:
    """Grouped Gemma RMSNorm of x [M, D]: fp32 inside, one rounding at the end."""
    rows, width = x.shape
    grouped = x.float().view(rows, groups, width // groups)
    scaled = grouped * torch.rsqrt(grouped.square().mean(-1, keepdim=True) + eps)
    affine = weight.float().view(-1, width // groups)
    return (scaled + scaled * affine).view(rows, width).to(x.dtype)


def silu(x: torch.Tensor, streams: int) -> torch.Tensor:
    """x / streams through SiLU in fp32, rounded once."""
    value = x.float() / streams
    return (value * torch.sigmoid(value)).to(x.dtype)


def gate_mix(x: torch.Tensor, gate: torch.Tensor, streams: int) -> torch.Tensor:
    """Mean over the streams of sigmoid(gate) * x: [M, D] -> [M, D / streams]."""
    rows, width = x.shape
    product = torch.sigmoid(gate.float()) * x.float()
    total = torch.zeros(rows, width // streams)
    for stream in product.view(rows, streams, -1).unbind(1):
        total = total + stream
    return (total / streams).to(x.dtype)


def combine(
    residual: torch.Tensor, block: torch.Tensor, logits: torch.Tensor | None, streams: int
) -> torch.Tensor:
    """residual [M, D] + block [M, D / streams] * 2 sigmoid(logits / streams) per stream."""
    rows, width = residual.shape
    wide = block.float().unsqueeze(1)
    if logits is not None:
        wide = wide * (2.0 * torch.sigmoid(logits.float() / streams)).unsqueeze(-1)
    summed = residual.float().view(rows, streams, -1) + wide
    return summed.view(rows, width).to(residual.dtype)


def combine_norm(
    residual: torch.Tensor,
    block: torch.Tensor,
    logits: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    streams: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Combine, round, then the norm of the rounded state."""
    state = combine(residual, block, logits, streams)
    return state, rmsnorm(state, weight, eps, streams)


def _import_with_empty_torchvision() -> None:
    """Import the processors that name torchvision, then take the empty modules away again."""
    importlib.import_module("transformers")  # decides first what is installed
    added = []
    for name in (*_VISION, "torchvision.transforms.v2.functional"):
        if name not in sys.modules:
            module = types.ModuleType(name)
            sys.modules[name] = module
            added.append(name)
            parent, _, leaf = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], leaf, module)
    try:
        importlib.import_module("transformers.models.qwen2_vl.image_processing_qwen2_vl")
        importlib.import_module("transformers.models.qwen2_vl.video_processing_qwen2_vl")
    finally:
        for name in added:
            del sys.modules[name]


def register() -> None:
    """Apply the stand-ins once in this process."""
    global _APPLIED
    if _APPLIED:
        return
    _APPLIED = True
    if importlib.util.find_spec("torchvision") is None:
        _import_with_empty_torchvision()
    hyper = importlib.import_module("vllm.models.qwen4_exp.nvidia.hyperconnection")
    hyper.grouped_gemma_rmsnorm = rmsnorm
    hyper.hc_silu = silu
    hyper.hc_gate_mix = gate_mix
    hyper.hc_combine = combine
    hyper.hc_combine_norm = combine_norm
    _mend_convolution()


def _mend_convolution() -> None:
    """Give the [channels, 1] input of a one-token prompt the strides that the kernel asks for."""
    layer = importlib.import_module("vllm.model_executor.layers.mamba.ops.cpu.gdn_attention")
    original = layer._causal_conv1d_fwd_cpu

    def with_strides(*, x: torch.Tensor, **rest: Any) -> torch.Tensor:
        if x.shape[1] == 1:
            x = x.as_strided(x.shape, (1, x.shape[0]))
        result: torch.Tensor = original(x=x, **rest)
        return result

    layer._causal_conv1d_fwd_cpu = with_strides
