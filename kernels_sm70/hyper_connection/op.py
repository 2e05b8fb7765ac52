# SPDX-License-Identifier: Apache-2.0
"""torch operations of the hyper-connection, and the choice between them and the original route.

kernels_sm70::hc_combine_norm, hc_down, hc_up_mix   the three kernels alone
kernels_sm70::hc_boundary                           all three: (R', mixed, J) of one layer boundary
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels_sm70 import counters, library, runtime
from kernels_sm70.contract import ContractError, arch_number
from kernels_sm70.hyper_connection import STREAMS, chain, checks, launch, reference

HIT, SHARDED_HIT = "hyper_connection.hit", "hyper_connection.sharded_hit"
REASONS = ("m1", "prefill", "dtype", "shape", "layout")
FALLBACKS = tuple(f"hyper_connection.fallback.{reason}" for reason in REASONS)
ROUTES = (HIT, SHARDED_HIT, *FALLBACKS)
ROUTED_ROWS = range(2, 18)  # M = 1 has a better original; wider batches are prefill


def _new(like: Tensor, *shape: int) -> Tensor:
    return like.new_empty(shape)


def _combine_norm_cuda(
    residual: Tensor, block: Tensor | None, injection: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    combined, normed = _new(residual, *residual.shape), _new(residual, *residual.shape)
    target = None if block is None else combined
    launch.plan_norm(residual, block, injection, weight, target, normed, eps=eps).launch(
        residual.device
    )
    return (combined if block is not None else residual.clone()), normed


def _combine_norm_cpu(
    residual: Tensor, block: Tensor | None, injection: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    storage = residual.dtype
    combined = reference.combine(residual, block, injection, storage).to(storage)
    return combined, reference.norm(combined, weight, eps, storage).to(storage)


def _down_cuda(
    normed: Tensor, weight: Tensor, lora_rows: int, injection_rows: int
) -> tuple[Tensor, Tensor]:
    (rows, depth), device = normed.shape, normed.device
    arch = runtime.architecture(device)
    lora, injection = _new(normed, rows, lora_rows), _new(normed, rows, injection_rows)
    workspace = None
    if chain.preferred(rows, depth // STREAMS, arch) == chain.COUNTER:
        workspace = launch.down_workspace(rows, depth, lora_rows + injection_rows, device=device)
        workspace[1].zero_()
    given = injection if injection_rows else None
    launch.plan_down(normed, weight, lora, given, arch=arch, workspace=workspace).launch(device)
    return lora, injection


def _down_cpu(
    normed: Tensor, weight: Tensor, lora_rows: int, injection_rows: int
) -> tuple[Tensor, Tensor]:
    lora, injection = reference.down(
        normed, weight[: lora_rows + injection_rows], lora_rows, normed.dtype
    )
    return lora.to(normed.dtype), injection.to(normed.dtype)


def _up_mix_cuda(lora: Tensor, weight: Tensor, normed: Tensor, first_column: int) -> Tensor:
    mixed = _new(normed, normed.shape[0], weight.shape[0] // STREAMS)
    hits = counters.row(SHARDED_HIT, normed.device).data_ptr()
    launch.plan_up(
        lora,
        weight,
        normed,
        mixed,
        arch=runtime.architecture(normed.device),
        first_column=first_column,
        hits=hits,
    ).launch(normed.device)
    return mixed


def _up_mix_cpu(lora: Tensor, weight: Tensor, normed: Tensor, first_column: int) -> Tensor:
    counters.count(SHARDED_HIT, normed.shape[0], normed.device)
    columns = weight.shape[0] // STREAMS
    own = normed.unflatten(-1, (STREAMS, -1))[..., first_column : first_column + columns]
    return reference.up_mix(lora, weight, own, normed.dtype).to(normed.dtype)


def _boundary_plans(
    given: chain.Operands, eps: float, injection_rows: int, arch: str
) -> tuple[tuple[launch.Plan, ...], chain.Results]:
    """The checked launches in the form this card and shape take, and the results they write."""
    residual = given.residual
    rows, depth = residual.shape
    out = chain.Results(
        combined=None if given.block is None else _new(residual, rows, depth),
        normed=_new(residual, rows, depth),
        lora=_new(residual, rows, given.up.shape[1]),
        logits=_new(residual, rows, injection_rows) if injection_rows else None,
        mixed=_new(residual, rows, depth // STREAMS),
    )
    hits = counters.row(HIT, residual.device).data_ptr()
    form = chain.preferred(rows, depth // STREAMS, arch)
    return chain.plan_chain(given, out, eps=eps, arch=arch, form=form, hits=hits), out


def _boundary_cuda(
    residual: Tensor,
    block: Tensor | None,
    injection: Tensor | None,
    norm_weight: Tensor,
    down: Tensor,
    up: Tensor,
    eps: float,
    injection_rows: int,
) -> tuple[Tensor, Tensor, Tensor]:
    given = chain.Operands(residual, block, injection, norm_weight, down, up)
    plans, out = _boundary_plans(given, eps, injection_rows, runtime.architecture(residual.device))
    for plan in plans:
        plan.launch(residual.device)
    combined = residual.new_empty(0) if out.combined is None else out.combined
    logits = _new(residual, residual.shape[0], 0) if out.logits is None else out.logits
    return combined, out.mixed, logits


def _boundary_cpu(
    residual: Tensor,
    block: Tensor | None,
    injection: Tensor | None,
    norm_weight: Tensor,
    down: Tensor,
    up: Tensor,
    eps: float,
    injection_rows: int,
) -> tuple[Tensor, Tensor, Tensor]:
    given = chain.Operands(residual, block, injection, norm_weight, down, up)
    _boundary_plans(given, eps, injection_rows, "sm_70")  # its checks; nothing is launched
    counters.count(HIT, residual.shape[0], residual.device)
    combined, mixed, logits = reference.whole(
        residual,
        block,
        injection,
        norm_weight=norm_weight,
        down_weight=down,
        up_weight=up,
        eps=eps,
        injection_rows=injection_rows,
        storage=residual.dtype,
    )
    kept = combined.to(residual.dtype) if block is not None else residual.new_empty(0)
    return kept, mixed.to(residual.dtype), logits.to(residual.dtype)


def _boundary_fake(
    residual: Tensor,
    block: Tensor | None,
    injection: Tensor | None,
    norm_weight: Tensor,
    down: Tensor,
    up: Tensor,
    eps: float,
    injection_rows: int,
) -> tuple[Tensor, Tensor, Tensor]:
    del injection, norm_weight, down, up, eps
    rows, depth = residual.shape
    kept = residual.new_empty(residual.shape) if block is not None else residual.new_empty(0)
    return kept, _new(residual, rows, depth // STREAMS), _new(residual, rows, injection_rows)


library.define(
    "hc_combine_norm(Tensor residual, Tensor? block, Tensor? injection, Tensor weight, "
    "float eps) -> (Tensor, Tensor)",
    cuda=_combine_norm_cuda,
    cpu=_combine_norm_cpu,
    fake=lambda residual, *_: (
        residual.new_empty(residual.shape),
        residual.new_empty(residual.shape),
    ),
)
library.define(
    "hc_down(Tensor normed, Tensor weight, int lora_rows, int injection_rows) -> (Tensor, Tensor)",
    cuda=_down_cuda,
    cpu=_down_cpu,
    fake=lambda x, _, n, extra: (_new(x, x.shape[0], n), _new(x, x.shape[0], extra)),
)
library.define(
    "hc_up_mix(Tensor lora, Tensor weight, Tensor normed, int first_column) -> Tensor",
    cuda=_up_mix_cuda,
    cpu=_up_mix_cpu,
    fake=lambda _, weight, x, __: _new(x, x.shape[0], weight.shape[0] // STREAMS),
)
library.define(
    "hc_boundary(Tensor residual, Tensor? block, Tensor? injection, Tensor norm_weight, "
    "Tensor down, Tensor up, "
    "float eps, int injection_rows) -> (Tensor, Tensor, Tensor)",
    cuda=_boundary_cuda,
    cpu=_boundary_cpu,
    fake=_boundary_fake,
)


def route(residual: Tensor, down: Tensor, up: Tensor, injection_rows: int) -> str | None:
    """Why the original route must be taken (one of REASONS), or None when the kernels may run.

    Decided from shapes, dtypes and layout only, so that a graph capture and its replays agree.
    """
    rows = residual.shape[0] if residual.dim() == 2 else 0
    if rows not in ROUTED_ROWS:
        return "shape" if rows == 0 else ("m1" if rows == 1 else "prefill")
    if residual.dtype not in checks.STORAGES or any(w.dtype != residual.dtype for w in (down, up)):
        return "dtype"
    if (
        residual.is_cuda
        and residual.dtype == torch.bfloat16
        and (arch_number(runtime.architecture(residual.device)) < 80)
    ):
        return "dtype"
    depth, rank = residual.shape[1], up.shape[-1]
    try:
        checks.check_sizes(rows, depth // STREAMS)
        checks.check_rank(rank)
    except ContractError:
        return "shape"
    fits = depth % STREAMS == 0 and tuple(up.shape) == (depth, rank) and down.dim() == 2
    if not fits or down.shape[1] != depth or down.shape[0] < rank + injection_rows:
        return "shape"
    packed = down.is_contiguous() and up.is_contiguous() and residual.stride(1) == 1
    aligned = (
        all(t.data_ptr() % 16 == 0 for t in (residual, down, up)) and residual.stride(0) % 8 == 0
    )
    return None if packed and aligned else "layout"


def count_fallback(reason: str, rows: int, device: torch.device) -> None:
    """Count a call that went to the original route, on its device."""
    counters.count(f"hyper_connection.fallback.{reason}", rows, device)


def boundary(
    residual: Tensor,
    block: Tensor | None,
    injection: Tensor | None,
    *,
    norm_weight: Tensor,
    down: Tensor,
    up: Tensor,
    eps: float,
    injection_rows: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """(R', mixed, J) of one layer boundary; without a block R' is the given residual itself.

    Raises:
        ContractError: outside the contract; ask `route` first and count what it says.
    """
    combined, mixed, logits = torch.ops.kernels_sm70.hc_boundary(
        residual, block, injection, norm_weight, down, up, eps, injection_rows
    )
    return (residual if block is None else combined), mixed, logits
