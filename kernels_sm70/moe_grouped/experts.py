# SPDX-License-Identifier: Apache-2.0
"""Expert weights as the kernels read them, and what is checked about them once at load."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels_sm70.contract import check_tensor, refuse
from kernels_sm70.moe_grouped import HIDDEN, MAX_EXPERTS, PASS

WHERE = "moe_grouped"
Wanted = tuple[str, torch.Tensor | None, tuple[int, ...], torch.dtype]


@dataclass(frozen=True, slots=True)
class Experts:
    """Weights of all experts as the kernels read them; scales are None for plain storage."""

    w13: torch.Tensor
    w13_scale: torch.Tensor | None
    w13_global: torch.Tensor | None
    w2: torch.Tensor
    w2_scale: torch.Tensor | None
    w2_global: torch.Tensor | None

    @property
    def kind(self) -> str:
        """The weight policy: "nvfp4" or "plain"."""
        return "plain" if self.w13_scale is None else "nvfp4"

    @property
    def intermediate(self) -> int:
        """I."""
        return int(self.w13.shape[1]) // 2


def _wanted(experts: Experts, storage: torch.dtype) -> tuple[Wanted, ...]:
    """Every tensor that must be there, with its shape and dtype."""
    count, rows = int(experts.w13.shape[0]), int(experts.w13.shape[1])
    width = rows // 2
    if experts.kind == "plain":
        return (
            ("w13", experts.w13, (count, rows, HIDDEN), storage),
            ("w2", experts.w2, (count, HIDDEN, width), storage),
        )
    e4m3 = torch.float8_e4m3fn
    return (
        ("w13", experts.w13, (count, rows, HIDDEN // 2), torch.uint8),
        ("w2", experts.w2, (count, HIDDEN, width // 2), torch.uint8),
        ("w13_scale", experts.w13_scale, (count, rows, HIDDEN // 16), e4m3),
        ("w2_scale", experts.w2_scale, (count, HIDDEN, width // 16), e4m3),
        ("w13_global", experts.w13_global, (count, 2), torch.float32),
        ("w2_global", experts.w2_global, (count,), torch.float32),
    )


def _check_geometry(experts: Experts) -> None:
    count, rows = int(experts.w13.shape[0]), int(experts.w13.shape[1])
    if rows == 0 or rows % (2 * PASS):
        raise refuse(
            WHERE,
            what="intermediate size",
            expected=f"a multiple of {PASS}",
            found=rows / 2,
            remedy="use the original route for this geometry",
        )
    if not 1 <= count <= MAX_EXPERTS:
        raise refuse(
            WHERE,
            what="experts",
            expected=f"1 to {MAX_EXPERTS}",
            found=count,
            remedy="use the original route for this geometry",
        )


def check_experts(experts: Experts, storage: torch.dtype) -> None:
    """Refuse expert tensors whose shape, dtype or layout breaks the contract; reads no data.

    Raises:
        ContractError: naming the tensor and the clause.
    """
    _check_geometry(experts)
    device = experts.w13.device
    for name, tensor, shape, dtype in _wanted(experts, storage):
        if tensor is None:
            raise refuse(
                WHERE,
                what=name,
                expected="a tensor, as w13_scale is given",
                found="None",
                remedy="pass all four scales, or none for plain experts",
            )
        align = 4 if name.endswith("global") else 2 if name.endswith("scale") else 16
        check_tensor(
            WHERE, name, tensor, shape=shape, dtype=dtype, device=device, row_alignment_bytes=align
        )
        if not tensor.is_contiguous():
            raise refuse(
                WHERE,
                what=f"{name} layout",
                expected="packed",
                found=f"strides {tensor.stride()}",
                remedy="prepare the weights once with .contiguous()",
            )


def prepare(experts: Experts, storage: torch.dtype) -> Experts:
    """Check weights once, at load: layout, and that no scale is NaN or infinite. Reads the data
    (synchronises).

    Raises:
        ContractError: also when a block scale is an e4m3 NaN or a global scale is not finite.
    """
    check_experts(experts, storage)
    for name in ("w13_scale", "w2_scale", "w13_global", "w2_global"):
        tensor = getattr(experts, name)
        if tensor is None:
            continue
        if tensor.dtype == torch.float8_e4m3fn:
            bad = int(((tensor.view(torch.uint8) & 0x7F) == 0x7F).sum())
        else:
            bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            raise refuse(
                WHERE,
                what=name,
                expected="finite scales",
                found=f"{bad} that are not",
                remedy="repair the checkpoint; the kernel would read a NaN scale as a number",
            )
    return experts
