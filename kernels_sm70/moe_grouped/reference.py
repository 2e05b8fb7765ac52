# SPDX-License-Identifier: Apache-2.0
"""The fp64 oracle of the grouped MoE: every rounding point is a call of `rounded`; sums are
float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels_sm70.moe_grouped import GROUP_ROUTES, PLAN_GROUP, PLAN_HEADER

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True, slots=True)
class Stages:
    """Values after each rounding point: a [M, K, I], o [M, K, 2560], y [M, 2560]; dropped routes
    hold 0."""

    activation: torch.Tensor
    routed: torch.Tensor
    y: torch.Tensor


def rounded(values: torch.Tensor, storage: torch.dtype) -> torch.Tensor:
    """f(): nearest even to `storage`, returned as float64. float64 storage rounds nothing."""
    return values.to(storage).double()


def plan(topk_ids: torch.Tensor, experts: int) -> torch.Tensor:
    """The plan of plan.cuh for ids [M, K], as int32 [8 + 12 * M * K]; unused groups are zero."""
    routes = topk_ids.flatten().tolist()
    groups: list[list[int]] = []  # expert, rank of the first route, routes
    open_group: dict[int, list[int]] = {}
    ranks: dict[int, int] = {}
    for route, expert in enumerate(routes):
        if not 0 <= expert < experts:
            continue
        rank = ranks.get(expert, 0)
        ranks[expert] = rank + 1
        if rank % GROUP_ROUTES == 0:
            open_group[expert] = [expert, rank]
            groups.append(open_group[expert])
        open_group[expert].append(route)
    placed = sum(len(group) - 2 for group in groups)
    out = [len(groups), placed, len(routes) - placed, *[0] * (PLAN_HEADER - 3)]
    for expert, rank, *members in groups:
        unused = [-1] * (GROUP_ROUTES - len(members))
        out += [expert, len(members), rank, 0, *members, *unused]
    out += [0] * (PLAN_HEADER + PLAN_GROUP * len(routes) - len(out))
    return torch.tensor(out, dtype=torch.int32)


def dequantize(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """e2m1 * e4m3 in float64, exact: packed [..., n / 2] uint8, scale [..., n / 16] e4m3 -> [...,
    n]."""
    table = torch.tensor([*E2M1, *(-v for v in E2M1)], dtype=torch.float64, device=packed.device)
    nibbles = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
    blocks = scale.view(torch.float8_e4m3fn).double().repeat_interleave(16, dim=-1)
    return table[nibbles.long()] * blocks


def expert_weights(
    weight: torch.Tensor, scale: torch.Tensor | None, global_scale: torch.Tensor | None, expert: int
) -> torch.Tensor:
    """One expert's matrix in float64; a pair of global scales covers the upper and the lower half
    of its rows."""
    if scale is None or global_scale is None:
        return weight[expert].double()
    values = dequantize(weight[expert], scale[expert])
    factors = global_scale[expert].double().reshape(-1)
    return values * factors.repeat_interleave(values.shape[0] // factors.numel())[:, None]


def weighted_sum(
    routed: torch.Tensor, topk_weights: torch.Tensor, valid: torch.Tensor
) -> torch.Tensor:
    """The slot sum in float32, slot by slot, each step one fused multiply-add; [M, K, N] -> [M, N]
    float32.

    A float32 times a 16-bit value is exact in float64. Adding in float64 and rounding to float32
    differs
    from the fused operation only if the float64 sum is itself inexact and lands on a float32 tie;
    the
    error-free residue decides those.
    """
    total = torch.zeros(routed.shape[0], routed.shape[2], dtype=torch.float32, device=routed.device)
    for slot in range(routed.shape[1]):
        product = topk_weights[:, slot, None].double() * routed[:, slot].double()
        step = _fused_add(product, total)
        total = torch.where(valid[:, slot, None], step, total)
    return total


def _fused_add(product: torch.Tensor, addend: torch.Tensor) -> torch.Tensor:
    high = product + addend.double()
    virtual = high - product
    low = (product - (high - virtual)) + (addend.double() - virtual)  # high + low is the exact sum
    result = high.float()
    # On a float32 tie of `high`, `low` says which side the exact sum lies.
    tie_up = (high - result.double()) == (
        torch.nextafter(result, torch.full_like(result, torch.inf)).double() - high
    )
    tie_down = (result.double() - high) == (
        high - torch.nextafter(result, torch.full_like(result, -torch.inf)).double()
    )
    up = torch.nextafter(result, torch.full_like(result, torch.inf))
    down = torch.nextafter(result, torch.full_like(result, -torch.inf))
    result = torch.where(tie_up & (low > 0), up, result)
    return torch.where(tie_down & (low < 0), down, result)


Matrix = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]


def chosen(topk_ids: torch.Tensor, experts: int) -> torch.Tensor:
    """Which routes count: [M, K] bool."""
    return (topk_ids >= 0) & (topk_ids < experts)


def activations(
    x: torch.Tensor, w13: Matrix, topk_ids: torch.Tensor, storage: torch.dtype
) -> torch.Tensor:
    """a [M, K, I] of x [M, 2560]: h rounded, then silu(gate) * up rounded."""
    experts, half = w13[0].shape[0], w13[0].shape[1] // 2
    out = torch.zeros(*topk_ids.shape, half, dtype=torch.float64, device=x.device)
    for expert in torch.unique(topk_ids[chosen(topk_ids, experts)]).tolist():
        token, slot = torch.nonzero(topk_ids == expert, as_tuple=True)
        h = rounded(x[token].double() @ expert_weights(*w13, expert).T, storage)
        gate, up = h[:, :half], h[:, half:]
        out[token, slot] = rounded(gate / (1.0 + torch.exp(-gate)) * up, storage)
    return out


def outputs(
    activation: torch.Tensor, w2: Matrix, topk_ids: torch.Tensor, storage: torch.dtype
) -> torch.Tensor:
    """o [M, K, 2560] of a [M, K, I]."""
    experts = w2[0].shape[0]
    out = torch.zeros(
        *topk_ids.shape, w2[0].shape[1], dtype=torch.float64, device=activation.device
    )
    for expert in torch.unique(topk_ids[chosen(topk_ids, experts)]).tolist():
        token, slot = torch.nonzero(topk_ids == expert, as_tuple=True)
        a = activation[token, slot].double()
        out[token, slot] = rounded(a @ expert_weights(*w2, expert).T, storage)
    return out


def combine(
    routed: torch.Tensor, topk_weights: torch.Tensor, valid: torch.Tensor, storage: torch.dtype
) -> torch.Tensor:
    """y [M, 2560] of o [M, K, 2560], in slot order."""
    if storage == torch.float64:
        return (topk_weights.double()[:, :, None] * routed * valid[:, :, None]).sum(1)
    return rounded(weighted_sum(routed, topk_weights, valid), storage)


def moe(
    x: torch.Tensor,
    w13: Matrix,
    w2: Matrix,
    *,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    storage: torch.dtype,
) -> Stages:
    """All stages; a matrix is (weight, block scale, global scale). See the package contract."""
    activation = activations(x, w13, topk_ids, storage)
    routed = outputs(activation, w2, topk_ids, storage)
    valid = chosen(topk_ids, w13[0].shape[0])
    return Stages(activation, routed, combine(routed, topk_weights, valid, storage))
