# SPDX-License-Identifier: Apache-2.0
"""torch operations of the GDN split and the choice between them and the original route.

kernels_sm70::gdn_split      four packed outputs
kernels_sm70::gdn_split_zba  z, b, a packed; q|k|v stays a view of the projection (stock vLLM)
"""

from __future__ import annotations

import torch

from kernels_sm70 import counters, library
from kernels_sm70.contract import ContractError
from kernels_sm70.gdn_split import launch, reference

HIT = "gdn_split.hit"
FALLBACKS = tuple(f"gdn_split.fallback.{reason}" for reason in ("m", "contract"))
ROUTES = (HIT, *FALLBACKS)


def _outputs(
    qkvz: torch.Tensor, ba: torch.Tensor, qkv_width: int, with_qkv: bool
) -> tuple[torch.Tensor, ...]:
    rows, width, half = qkvz.shape[0], qkvz.shape[1], ba.shape[1] // 2
    widths = ((qkv_width,) if with_qkv else ()) + (width - qkv_width,)
    return (
        *(qkvz.new_empty(rows, n) for n in widths),
        ba.new_empty(rows, half),
        ba.new_empty(rows, half),
    )


def _cuda(
    qkvz: torch.Tensor, ba: torch.Tensor, qkv_width: int, with_qkv: bool
) -> tuple[torch.Tensor, ...]:
    launch.check(qkvz, ba, qkv_width)
    outputs = _outputs(qkvz, ba, qkv_width, with_qkv)
    launch.run(
        qkvz,
        ba,
        outputs if with_qkv else (None, *outputs),
        hits=counters.row(HIT, qkvz.device).data_ptr(),
    )
    return outputs


def _cpu(
    qkvz: torch.Tensor, ba: torch.Tensor, qkv_width: int, with_qkv: bool
) -> tuple[torch.Tensor, ...]:
    launch.check(qkvz, ba, qkv_width)
    counters.count(HIT, qkvz.shape[0], qkvz.device)
    outputs = reference.split(qkvz, ba, qkv_width)
    return outputs if with_qkv else outputs[1:]


for _name, _with_qkv in (("gdn_split", True), ("gdn_split_zba", False)):
    library.define(
        f"{_name}(Tensor qkvz, Tensor ba, int qkv_width)"
        f" -> ({'Tensor, ' * (3 if _with_qkv else 2)}Tensor)",
        cuda=lambda x, y, n, _w=_with_qkv: _cuda(x, y, n, _w),
        cpu=lambda x, y, n, _w=_with_qkv: _cpu(x, y, n, _w),
        fake=lambda x, y, n, _w=_with_qkv: _outputs(x, y, n, _w),
    )


def route(qkvz: torch.Tensor, ba: torch.Tensor, qkv_width: int) -> str | None:
    """Why the original route must be taken, or None when the copy kernel may run.

    Decided from shapes and layout only, so that a graph capture and its replays agree. M = 1 keeps
    the original route: none of its slices copies there.
    """
    if qkvz.shape[0] < 2:
        return "m"
    try:
        launch.check(qkvz, ba, qkv_width)
    except ContractError:
        return "contract"
    return None


def split_zba(
    qkvz: torch.Tensor, ba: torch.Tensor, qkv_width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (qkv, z, b, a) for stock vLLM: qkv a view; the rest by the kernel, or as views when
    routed away.

    Every call is counted: a hit by the kernel itself, a fallback under its reason.
    """
    reason = route(qkvz, ba, qkv_width)
    if reason is None:
        z, b, a = torch.ops.kernels_sm70.gdn_split_zba(qkvz, ba, qkv_width)
        return qkvz[:, :qkv_width], z, b, a
    counters.count(f"gdn_split.fallback.{reason}", qkvz.shape[0], qkvz.device)
    half = ba.shape[1] // 2
    return (
        qkvz[:, :qkv_width],
        qkvz[:, qkv_width:].contiguous(),
        ba[:, :half].contiguous(),
        ba[:, half:].contiguous(),
    )
