# SPDX-License-Identifier: Apache-2.0
"""Inputs, plans and comparisons shared by the CPU tests, the on-GPU checks and the bench.

Each stage is compared given the kernel's own input of that stage, so its bound is that stage's
alone:
float32 sums differ from float64 ones near a rounding boundary, which flips a few results by one
unit.
A dropped or doubled rounding point moves a large share of them and lands several times over the
bound.
"""

from __future__ import annotations

import torch

from kernels_sm70 import gpu_checks
from kernels_sm70.hyper_connection import HIDDEN, RANK, STREAMS, launch, reference
from kernels_sm70.hyper_connection.chain import Operands, Results, plan_chain

STAGE_REL_L2 = {torch.float16: 1e-4, torch.bfloat16: 3e-4}
WHOLE_REL_L2 = {torch.float16: 3e-4, torch.bfloat16: 1.5e-3}
# An element may fall on the other side at each of its rounding points; 1 to 2 ulp were measured.
STAGE_ULP = 4
WHOLE_ULP = 16
EPS = 1e-6


class Inputs(Operands):
    """Operands with nothing missing. The down weight's padding rows hold NaN: never to be read."""

    block: torch.Tensor
    injection: torch.Tensor


class Outputs(Results):
    """Results with nothing missing."""

    combined: torch.Tensor
    logits: torch.Tensor

    def all(self) -> tuple[torch.Tensor, ...]:
        """The tensors, in the order of the chain."""
        return self.combined, self.normed, self.lora, self.logits, self.mixed


def inputs(
    rows: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    seed: int,
    hidden: int = HIDDEN,
    rank: int = RANK,
) -> Inputs:
    """Random inputs with the scales of a trained layer; the logits are a strided view, as in
    vLLM.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    depth = STREAMS * hidden

    def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator, device=device) * scale).to(dtype)

    padded = -(-(rank + STREAMS) // 16) * 16
    down = random(padded, depth, scale=2.0 * depth**-0.5)
    down[rank + STREAMS :] = float("nan")
    return Inputs(
        random(rows, depth),
        random(rows, hidden),
        random(rows, rank + 16)[:, rank : rank + STREAMS],
        random(depth, scale=0.1),
        down,
        random(depth, rank, scale=3.0 * rank**-0.5),
    )


def outputs(given: Inputs) -> Outputs:
    """Poisoned outputs for these inputs."""
    rows, depth = given.residual.shape
    made = Outputs(
        *(
            given.residual.new_empty(rows, n)
            for n in (depth, depth, given.up.shape[1], STREAMS, depth // STREAMS)
        )
    )
    gpu_checks.poison(made.all())
    return made


def plans(given: Inputs, out: Outputs, *, arch: str, form: str) -> tuple[launch.Plan, ...]:
    """The launches of one boundary in one form, writing into `out`."""
    return plan_chain(given, out, eps=EPS, arch=arch, form=form)


def bound_for(bound: float, elements: int) -> float:
    """The bound for a tensor of this size: below 4096 elements one flipped rounding weighs more."""
    return float(bound * max(1.0, (4096 / elements) ** 0.5))


def verify(given: Inputs, out: Outputs, what: str) -> dict[str, dict[str, float]]:
    """Compare every stage with the oracle; AssertionError beyond the bounds."""
    storage, rank = given.residual.dtype, given.up.shape[1]
    bound = STAGE_REL_L2[storage]
    lora, logits = reference.down(out.normed, given.down[: rank + STREAMS], rank, storage)
    expected = {
        "combined": reference.combine(given.residual, given.block, given.injection, storage),
        "normed": reference.norm(out.combined, given.norm_weight, EPS, storage),
        "lora": lora,
        "logits": logits,
        "mixed": reference.up_mix(out.lora, given.up, out.normed, storage),
    }
    return {
        name: gpu_checks.assert_close(
            getattr(out, name),
            want,
            rel_l2=bound_for(bound, want.numel()),
            ulp=STAGE_ULP,
            what=f"{what}: {name}",
        )
        for name, want in expected.items()
    }


def verify_whole(given: Inputs, out: Outputs, what: str) -> dict[str, float]:
    """Compare the end of the chain with the oracle of the whole chain."""
    storage = given.residual.dtype
    _, mixed, logits = reference.whole(
        given.residual,
        given.block,
        given.injection,
        norm_weight=given.norm_weight,
        down_weight=given.down,
        up_weight=given.up,
        eps=EPS,
        injection_rows=STREAMS,
        storage=storage,
    )
    gpu_checks.assert_close(
        out.logits,
        logits,
        rel_l2=bound_for(WHOLE_REL_L2[storage], logits.numel()),
        what=f"{what}: logits, whole",
    )
    return gpu_checks.assert_close(
        out.mixed,
        mixed,
        rel_l2=bound_for(WHOLE_REL_L2[storage], mixed.numel()),
        ulp=WHOLE_ULP,
        what=f"{what}: mixed, whole",
    )
