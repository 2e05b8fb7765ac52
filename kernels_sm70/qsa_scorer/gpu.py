# SPDX-License-Identifier: Apache-2.0
"""On-GPU checks of the scorer: fp64 oracle, unwritten columns, relocation, replay."""

from __future__ import annotations

import dataclasses

import torch

from kernels_sm70 import gpu_checks
from kernels_sm70.moe_grouped.gpu import volta_atom_forced
from kernels_sm70.qsa_scorer import launch, reference, synthetic
from kernels_sm70.qsa_scorer.launch import Inputs, Schedule

WIDTHS = (*range(1, 18), 24, 33)
CONTEXTS = (3, 4, 130, 2048, 8192, 131072, 262144)
# float32 sums of 128 exact products in the matrix unit's own order.
REL_L2 = 1e-5
POISON = -12345.0


def storages() -> tuple[torch.dtype, ...]:
    """The storage types this process can check."""
    return (torch.float16,) if volta_atom_forced() else (torch.float16, torch.bfloat16)


def _fresh(inputs: Inputs) -> torch.Tensor:
    shape = (len(inputs.q), inputs.columns)
    return torch.full(shape, POISON, dtype=torch.float32, device=inputs.q.device)


def verify(scores: torch.Tensor, inputs: Inputs, what: str) -> float:
    """Relative L2 over the written columns.

    Raises:
        AssertionError: beyond the bound, or where a column that must stay unwritten was written.
    """
    fields = (inputs.q, inputs.keys, inputs.page_table, inputs.visible)
    each = inputs.rows_per_request
    expected = reference.scores(*fields, rows_per_request=each, unwritten=POISON)
    hidden = expected == POISON
    if not bool((scores[hidden] == POISON).all()):
        raise AssertionError(f"{what}: a column the row may not see was written")
    found = gpu_checks.assert_close(
        scores[~hidden], expected[~hidden], rel_l2=REL_L2, what=f"qsa_scorer {what}"
    )
    return found["rel_l2"]


def _run(inputs: Inputs, schedule: Schedule, what: str) -> float:
    scores = _fresh(inputs)
    launch.check(inputs, scores)
    launch.run(inputs, scores, schedule=schedule)
    return verify(scores, inputs, f"{what} {schedule.name}")


def every_case(report: gpu_checks.Report) -> None:
    """Every M and context, uneven contexts, 1 to 5 rows a request, page sizes, all schedules."""
    for storage in storages():
        worst = 0.0
        for context in CONTEXTS:
            for rows in WIDTHS if context == 2048 else (1, 4):
                contexts = [max(context - 37 * i, 0) for i in range(rows)]
                for page_keys in (4, 196) if context <= 2048 else (196,):
                    made = synthetic.inputs(
                        contexts, storage, page_keys=page_keys, device=report.device, seed=rows
                    )
                    for schedule in Schedule:
                        found = _run(made, schedule, f"{storage} M={rows} context={context}")
                        worst = max(worst, found)
        for each in range(1, 6):
            made = synthetic.inputs(
                [8192, 40, 0, 2049], storage, rows_per_request=each, device=report.device
            )
            for schedule in Schedule:
                worst = max(worst, _run(made, schedule, f"{storage} L={each}"))
        report.add(
            "qsa_scorer",
            f"every M and context, {storage}",
            contexts=list(CONTEXTS),
            bound_rel_l2=REL_L2,
            rel_l2=worst,
        )


def holes_and_relocation(report: gpu_checks.Report) -> None:
    """Missing pages score -1; a capacity far beyond the context; relocation changes no bit."""
    for storage in storages():
        made = synthetic.inputs(
            [8000, 300, 4096], storage, capacity=262144, device=report.device, seed=5
        )
        made.page_table[0, 2], made.page_table[2, 0] = -1, made.keys.shape[0]
        _run(made, Schedule.LIVE, "holes")
        whole = synthetic.inputs([8192, 5000], storage, device=report.device, seed=6)
        moved = synthetic.relocated(whole, seed=7)
        for schedule in Schedule:
            one, two = (launch.run(i, _fresh(i), schedule=schedule) for i in (whole, moved))
            if not torch.equal(one, two):
                raise AssertionError(f"qsa_scorer {schedule}: relocation changed a bit")
    report.add("qsa_scorer", "holes score -1; relocation changes no bit")


def small(report: gpu_checks.Report) -> None:
    """For compute-sanitizer."""
    for storage in storages():
        for each in (1, 3):
            made = synthetic.inputs(
                [300, 77, 0], storage, page_keys=4, rows_per_request=each, device=report.device
            )
            for schedule in Schedule:
                _run(made, schedule, "small")
    report.add("qsa_scorer", "every schedule, small")


def graph_replay(report: gpu_checks.Report) -> None:
    """Changed queries, keys, tables and lengths under replay; poisoned scores; a busy card."""
    for schedule in Schedule:
        held = synthetic.inputs([8192] * 8, torch.float16, capacity=16384, device=report.device)
        scores = _fresh(held)

        def refill(seed: int, held: Inputs = held, scores: torch.Tensor = scores) -> None:
            contexts = [8192 - 111 * ((i + seed) % 8) * seed for i in range(8)]
            fresh = synthetic.inputs(
                contexts, torch.float16, capacity=16384, device=held.q.device, seed=seed
            )
            held.keys[: len(fresh.keys)].copy_(fresh.keys)
            for name in ("q", "page_table", "visible"):
                getattr(held, name).copy_(getattr(fresh, name))
            scores.fill_(POISON)

        def check(cycle: int, held: Inputs = held, scores: torch.Tensor = scores) -> None:
            verify(scores, held, f"replay {cycle}")

        def run(held: Inputs = held, scores: torch.Tensor = scores, s: Schedule = schedule) -> None:
            launch.run(held, scores, schedule=s)

        gpu_checks.replay_with_changes(run, refill=refill, outputs=(), verify=check)
    gpu_checks.stress_beside_traffic(run, verify=lambda: check(-1), cycles=8)
    report.add("qsa_scorer", "changed inputs under replay; auxiliary stream")


def beyond_int32(report: gpu_checks.Report) -> None:
    """Keys whose byte offsets exceed 2^31."""
    made = synthetic.inputs([2048, 512], torch.float16, device=report.device)
    pages = 2**31 // (196 * 128) + 8  # elements, so twice 2^31 bytes
    keys = torch.empty(pages, 196, 128, dtype=torch.float16, device=report.device)
    count = len(made.keys)
    keys[-count:] = made.keys
    there = made.page_table >= 0
    table = torch.where(there, made.page_table + pages - count, -1).int()
    _run(dataclasses.replace(made, keys=keys, page_table=table), Schedule.LIVE, "beyond int32")
    report.add("qsa_scorer", "keys beyond 2^31 elements", key_bytes=2 * keys.numel())


CHECKS = (every_case, holes_and_relocation, graph_replay, beyond_int32)
SANITIZER_CHECKS = (small,)
VOLTA_CHECKS = (small,)
