# SPDX-License-Identifier: Apache-2.0
"""On-GPU checks of the sparse attention: fp64 oracle, relocation of KV pages, replay."""

from __future__ import annotations

import torch

from kernels_sm70 import gpu_checks
from kernels_sm70.qsa_attention import launch, reference, synthetic
from kernels_sm70.qsa_expand.synthetic import positions_at
from kernels_sm70.qsa_page4 import WIDTH
from kernels_sm70.qsa_page4 import launch as page4
from kernels_sm70.qsa_page4 import synthetic as page4_inputs
from kernels_sm70.qsa_scorer.gpu import storages

WIDTHS = (*range(1, 18), 24, 64)
# Two rounding points, each may fall the other way by one ulp.
REL_L2 = {torch.float16: 2e-4, torch.bfloat16: 1e-3}


def pages_of(selected: page4.Inputs) -> torch.Tensor:
    """The list by its own kernel."""
    out = torch.empty(len(selected.blocks), WIDTH, dtype=torch.int32, device=selected.blocks.device)
    page4.check(selected, out)
    return page4.run(selected, out)


def verify(out: torch.Tensor, inputs: launch.Inputs, what: str) -> dict[str, float]:
    """Against the oracle; returns the measures."""
    expected = reference.attention(
        inputs.q, inputs.k, inputs.v, inputs.gate, inputs.pages, storage=inputs.q.dtype
    )
    return gpu_checks.assert_close(
        out, expected, rel_l2=REL_L2[inputs.q.dtype], what=f"qsa_attention {what}"
    )


def _run(inputs: launch.Inputs) -> torch.Tensor:
    launch.check(inputs)
    buffers = launch.allocate(inputs)
    gpu_checks.poison((buffers.partial, buffers.statistics, buffers.out))
    return launch.run(inputs, buffers)


def every_case(report: gpu_checks.Report) -> None:
    """Every M at 8K, short and long contexts, padded rows, the four residues, page sizes."""
    for storage in storages():
        worst = 0.0
        for rows in WIDTHS:
            for page_tokens in (16, 784) if rows in (4, 16) else (16,):
                selected, cache, q, gate = synthetic.state(
                    positions_at(8192, rows),
                    storage,
                    page_tokens=page_tokens,
                    seed=rows,
                    device=report.device,
                )
                made = synthetic.inputs(cache, q, gate, pages_of(selected))
                worst = max(worst, verify(_run(made), made, f"{storage} M={rows}")["rel_l2"])
        selected, cache, q, gate = synthetic.state(
            [-1, 0, 1, 2, 3, 31, 126, 127, 128, 2047, 2050], storage, device=report.device
        )
        made = synthetic.inputs(cache, q, gate, pages_of(selected))
        worst = max(worst, verify(_run(made), made, f"{storage} short contexts")["rel_l2"])
        report.add(
            "qsa_attention",
            f"every M, {storage}",
            widths=list(WIDTHS),
            rel_l2=worst,
            bound_rel_l2=REL_L2[storage],
        )


def relocation(report: gpu_checks.Report) -> None:
    """Page list and attention after the KV pages moved: the same bits."""
    for storage in storages():
        for page_tokens in (16, 784):
            selected, cache, q, gate = synthetic.state(
                positions_at(8192, 16), storage, page_tokens=page_tokens, device=report.device
            )
            before = _run(synthetic.inputs(cache, q, gate, pages_of(selected)))
            moved, to = page4_inputs.relocated(selected, seed=3)
            cache = synthetic.moved_cache(cache, to)
            after = _run(synthetic.inputs(cache, q, gate, pages_of(moved)))
            if not gpu_checks.same_bits(before, after):
                raise AssertionError(
                    f"qsa_attention {storage} P={page_tokens}: relocation changed bits"
                )
    report.add("qsa_attention", "relocating KV pages changes no bit")


def graph_replay(report: gpu_checks.Report) -> None:
    """List and attention in one graph, changed inputs, poisoned buffers; a busy card."""
    storage = torch.float16
    selected, cache, q, gate = synthetic.state(positions_at(8192, 8), storage, device=report.device)
    pages = torch.empty(8, WIDTH, dtype=torch.int32, device=report.device)
    made = synthetic.inputs(cache, q, gate, pages)
    buffers = launch.allocate(made)

    def refill(seed: int) -> None:
        positions = [p - 41 * seed for p in positions_at(8191, 8)]
        fresh, new_cache, new_q, new_gate = synthetic.state(
            positions, storage, seed=seed, device=report.device
        )
        for name in ("blocks", "positions", "visible"):
            getattr(selected, name).copy_(getattr(fresh, name))
        selected.block_table[:, : fresh.block_table.shape[1]].copy_(fresh.block_table)
        cache[: len(new_cache)].copy_(new_cache)
        q.copy_(new_q)
        gate.copy_(new_gate)
        gpu_checks.poison((buffers.partial, buffers.statistics))
        pages.fill_(-99)

    def run() -> None:
        page4.run(selected, pages)
        launch.run(made, buffers)

    def check(cycle: int) -> None:
        verify(buffers.out, made, f"replay {cycle}")

    gpu_checks.replay_with_changes(run, refill=refill, outputs=(buffers.out,), verify=check)
    gpu_checks.stress_beside_traffic(run, verify=lambda: check(-1), cycles=8)
    report.add("qsa_attention", "changed inputs under replay; auxiliary stream")


def small(report: gpu_checks.Report) -> None:
    """For compute-sanitizer."""
    for storage in storages():
        selected, cache, q, gate = synthetic.state([-1, 2, 130, 700], storage, device=report.device)
        made = synthetic.inputs(cache, q, gate, pages_of(selected))
        verify(_run(made), made, "small")
    report.add("qsa_attention", "small")


CHECKS = (every_case, relocation, graph_replay)
SANITIZER_CHECKS = (small,)
VOLTA_CHECKS = (small,)
