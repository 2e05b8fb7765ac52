# SPDX-License-Identifier: Apache-2.0
"""On-GPU checks of the hyper-connection against the float64 oracle."""

from __future__ import annotations

import torch

from kernels_sm70 import gpu_checks, runtime
from kernels_sm70.hyper_connection import HIDDEN, launch, weights
from kernels_sm70.hyper_connection import op as _op  # registers the operations
from kernels_sm70.hyper_connection.cases import (
    STAGE_REL_L2,
    WHOLE_REL_L2,
    Inputs,
    Outputs,
    inputs,
    outputs,
    plans,
    verify,
    verify_whole,
)
from kernels_sm70.hyper_connection.chain import CLUSTERED, COUNTER, forms

STORAGES = (torch.float16, torch.bfloat16)
EVERY_M = (*range(1, 18), 24)
ROUTES = _op.ROUTES


def run_all(given: Inputs, out: Outputs, *, form: str) -> None:
    """Enqueue the three kernels."""
    device = given.residual.device
    for plan in plans(given, out, arch=runtime.architecture(device), form=form):
        plan.launch(device)


def _forms(device: torch.device) -> tuple[str, ...]:
    return forms(runtime.architecture(device))


def _storages(device: torch.device) -> tuple[torch.dtype, ...]:
    old = torch.cuda.get_device_capability(device)[0] < 8 or runtime.forced_volta()
    return STORAGES[:1] if old else STORAGES


def every_width(report: gpu_checks.Report) -> None:
    """M = 1..17 and 24, both storages, both forms of the down kernel, poisoned outputs."""
    for storage in _storages(report.device):
        for form in _forms(report.device):
            worst: dict[str, dict[str, float]] = {}
            for rows in EVERY_M:
                given = inputs(rows, storage, report.device, seed=rows)
                out = outputs(given)
                run_all(given, out, form=form)
                what = f"hyper_connection {storage} M={rows} {form}"
                measured = verify(given, out, what) | {"whole": verify_whole(given, out, what)}
                for name, facts in measured.items():
                    kept = worst.setdefault(name, facts)
                    worst[name] = {key: max(kept[key], facts[key]) for key in facts}
            report.add(
                "hyper_connection",
                "every M, poisoned outputs",
                storage=str(storage),
                form=form,
                widths=list(EVERY_M),
                bound=STAGE_REL_L2[storage],
                whole_bound=WHOLE_REL_L2[storage],
                worst=worst,
            )


def forms_agree(report: gpu_checks.Report) -> None:
    """Clustered and arrival-counter forms sum in one order: their bits must be equal."""
    if len(_forms(report.device)) < 2:
        report.add("hyper_connection", "forms agree: not checked, this card has no clusters")
        return
    for storage in _storages(report.device):
        given = inputs(16, storage, report.device, seed=5)
        pair = [outputs(given), outputs(given)]
        for out, form in zip(pair, (COUNTER, CLUSTERED), strict=True):
            run_all(given, out, form=form)
        if not all(
            gpu_checks.same_bits(a, b) for a, b in zip(pair[0].all(), pair[1].all(), strict=True)
        ):
            raise AssertionError(f"hyper_connection {storage}: the two forms of down differ")
    report.add("hyper_connection", "both forms of down agree bit for bit", bit_equal=True)


def sharded_up(report: gpu_checks.Report) -> None:
    """Four ranks' up shards run one after another and gathered side by side equal the replicated
    up, bit for bit.
    """
    for storage in _storages(report.device):
        given = inputs(13, storage, report.device, seed=9)
        out = outputs(given)
        run_all(given, out, form=COUNTER)
        arch, columns = runtime.architecture(report.device), HIDDEN // 4
        gathered = torch.empty_like(out.mixed)
        gpu_checks.poison([gathered])
        for rank in range(4):
            shard = weights.prepare_up_shard(given.up, ranks=4, rank=rank)
            target = gathered[:, rank * columns : (rank + 1) * columns]
            launch.plan_up(
                out.lora, shard, out.normed, target, arch=arch, first_column=rank * columns
            ).launch(report.device)
        if not gpu_checks.same_bits(gathered, out.mixed):
            raise AssertionError(
                f"hyper_connection {storage}: gathered shards differ from the replicated up"
            )
    report.add(
        "hyper_connection", "four up shards gathered equal the replicated up", bit_equal=True
    )


def graph_replay(report: gpu_checks.Report) -> None:
    """Changed inputs and weights, poisoned outputs, under graph replay; then beside traffic on
    another stream.
    """
    for storage in _storages(report.device):
        for form in _forms(report.device):
            given = inputs(16, storage, report.device, seed=1)
            out = outputs(given)

            def refill(seed: int, given: Inputs = given, storage: torch.dtype = storage) -> None:
                fresh = inputs(16, storage, report.device, seed=100 + seed)
                for name in ("residual", "block", "injection", "norm_weight", "down", "up"):
                    getattr(given, name).copy_(getattr(fresh, name))

            def run(given: Inputs = given, out: Outputs = out, form: str = form) -> None:
                run_all(given, out, form=form)

            def check(cycle: int, given: Inputs = given, out: Outputs = out) -> None:
                verify(given, out, f"replay {cycle}")

            gpu_checks.replay_with_changes(run, refill=refill, outputs=out.all(), verify=check)
            torch.cuda.synchronize()
            kept = [tensor.clone() for tensor in out.all()]

            def unchanged(out: Outputs = out, kept: list[torch.Tensor] = kept) -> None:
                pairs = zip(out.all(), kept, strict=True)
                if not all(gpu_checks.same_bits(a, b) for a, b in pairs):
                    raise AssertionError("auxiliary stream: the result changed between runs")
                gpu_checks.poison(out.all())

            gpu_checks.stress_beside_traffic(run, verify=unchanged)
    report.add(
        "hyper_connection",
        "changed inputs under replay; 64 auxiliary-stream cycles, bit-stable",
        replays=8,
    )


def one_boundary(report: gpu_checks.Report) -> None:
    """A single width of each form, for the sanitizer."""
    for form in _forms(report.device):
        given = inputs(9, torch.float16, report.device, seed=3)
        out = outputs(given)
        run_all(given, out, form=form)
        verify(given, out, f"sanitizer {form}")
    report.add("hyper_connection", "one boundary, both forms")


CHECKS = (every_width, forms_agree, sharded_up, graph_replay)
SANITIZER_CHECKS = (one_boundary,)
# Run once more with Volta's matrix instruction, which newer cards emulate.
VOLTA_CHECKS = (every_width,)
