# SPDX-License-Identifier: Apache-2.0
"""On-GPU checks of the page list: integer equality, and its order under relocation of KV pages."""

from __future__ import annotations

import dataclasses

import torch

from kernels_sm70 import gpu_checks
from kernels_sm70.qsa_expand.synthetic import positions_at
from kernels_sm70.qsa_page4 import WIDTH, launch, reference, synthetic

WIDTHS = (*range(1, 18), 24, 64)
# 784 = 4 * 196: a page size that is no power of two.
CONTEXTS = ((40, 16), (8192, 16), (8192, 784), (131072, 64), (262144, 16))
POISON = -123456789


def oracle(inputs: launch.Inputs) -> torch.Tensor:
    """The oracle's list for inputs on any device."""
    tensors = (getattr(inputs, f.name) for f in dataclasses.fields(inputs)[:5])
    return reference.pages(
        *(tensor.cpu() for tensor in tensors),
        page_tokens=inputs.page_tokens,
        physical_pages=inputs.physical_pages,
    )


def _run(inputs: launch.Inputs, what: str) -> torch.Tensor:
    out = torch.full((len(inputs.blocks), WIDTH), POISON, dtype=torch.int32)
    out = out.to(inputs.blocks.device)
    launch.check(inputs, out)
    launch.run(inputs, out)
    if not torch.equal(out.cpu(), oracle(inputs)):
        raise AssertionError(f"qsa_page4 {what}: differs from the oracle")
    return out


def every_case(report: gpu_checks.Report) -> None:
    """Every M at 8K; contexts to 256K; page sizes 16, 64 and 784; poisoned output."""
    for context, page_tokens in CONTEXTS:
        for rows in WIDTHS if (context, page_tokens) == (8192, 16) else (4, 16):
            positions = [max(p, -1) for p in positions_at(context, rows)]
            inputs = synthetic.inputs(
                positions, page_tokens=page_tokens, seed=rows, device=report.device
            )
            _run(inputs, f"M={rows} context={context} page={page_tokens}")
    report.add("qsa_page4", "every M and context", contexts=list(CONTEXTS), integer_equal=True)


def holes(report: gpu_checks.Report) -> None:
    """Padded rows, missing and out-of-range table entries, a request outside the table."""
    inputs = synthetic.inputs([8191, 4000, -1, 37, 2050], device=report.device, seed=3)
    inputs.block_table[0, 5], inputs.block_table[1, 0] = -1, inputs.physical_pages
    inputs.block_table[4, 2050 // 16] = -1  # the open block's page
    inputs.requests[3] = 99
    _run(inputs, "holes")
    report.add("qsa_page4", "holes in the table are rejected and counted", integer_equal=True)


def relocation(report: gpu_checks.Report) -> None:
    """Moved KV pages give the same list through the move's map."""
    for page_tokens in (16, 784):
        positions = positions_at(8192, 16)
        before = synthetic.inputs(positions, page_tokens=page_tokens, device=report.device)
        after, to = synthetic.relocated(before, seed=8)
        old, new = _run(before, "before the move").long(), _run(after, "after the move")
        per_page = page_tokens // 4
        pages = old[:, :513]
        mapped = torch.where(
            pages < 0, pages, to[pages.clamp_min(0) // per_page] * per_page + pages % per_page
        )
        if not torch.equal(torch.cat([mapped, old[:, 513:]], 1).int(), new):
            raise AssertionError("qsa_page4: relocation changed the order or the number of pages")
    report.add("qsa_page4", "relocation keeps order and number", integer_equal=True)


def graph_replay(report: gpu_checks.Report) -> None:
    """Changed selections and tables under replay, poisoned output."""
    held = synthetic.inputs(positions_at(8192, 16), device=report.device)
    out = torch.empty(16, WIDTH, dtype=torch.int32, device=report.device)

    def refill(seed: int) -> None:
        positions = [p - 97 * seed for p in positions_at(8191, 16)]
        fresh = synthetic.inputs(positions, seed=seed, device=report.device)
        width = fresh.block_table.shape[1]
        for name in ("blocks", "positions", "visible"):
            getattr(held, name).copy_(getattr(fresh, name))
        held.block_table[:, :width].copy_(fresh.block_table)
        out.fill_(POISON)

    def verify(cycle: int) -> None:
        if not torch.equal(out.cpu(), oracle(held)):
            raise AssertionError(f"qsa_page4 replay {cycle}: differs from the oracle")

    def run() -> None:
        launch.run(held, out)

    gpu_checks.replay_with_changes(run, refill=refill, outputs=(), verify=verify)
    gpu_checks.stress_beside_traffic(run, verify=lambda: verify(-1), cycles=8)
    report.add("qsa_page4", "changed inputs under replay; auxiliary stream", integer_equal=True)


CHECKS = (every_case, holes, relocation, graph_replay)
SANITIZER_CHECKS = (holes,)
