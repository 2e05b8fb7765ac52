# SPDX-License-Identifier: Apache-2.0
"""On-GPU check of the MoE plan: integer for integer."""

from __future__ import annotations

import torch

from kernels_sm70 import gpu_checks, runtime
from kernels_sm70.moe_grouped import MAX_ROUTES, PLAN_GROUP, PLAN_HEADER, launch, reference

SHAPES = ((1, 1), (3, 10), (16, 10), (25, 10), (64, 16))
EXPERTS = (2, 40, 512, 1024)


def plans(report: gpu_checks.Report) -> None:
    """Random ids, dropped ones among them, up to 1024 routes, against the oracle."""
    generator = torch.Generator().manual_seed(5)
    for rows, top_k in SHAPES:
        for experts in EXPERTS:
            ids = torch.randint(-1, experts + 1, (rows, top_k), generator=generator).int()
            expected = reference.plan(ids, experts)
            buffers = launch.allocate(
                torch.empty(rows, 1, dtype=torch.float16, device=report.device), 8, ids.numel()
            )
            buffers.plan.fill_(-77)
            buffers.arrivals.fill_(9)
            held = ids.to(report.device)
            spec, args, geometry = launch.plan_step(held, experts, buffers=buffers)
            runtime.launch(spec, args, geometry, device=report.device)
            live = PLAN_HEADER + PLAN_GROUP * int(expected[0])
            found = buffers.plan[:live].cpu()
            if not torch.equal(found, expected[:live]) or bool(buffers.arrivals.any()):
                raise AssertionError(f"moe_grouped plan: M={rows} K={top_k} E={experts} differs")
    report.add("moe_grouped", "plans", largest_routes=MAX_ROUTES, integer_equal=True)
