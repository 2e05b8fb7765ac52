# SPDX-License-Identifier: Apache-2.0
"""On-GPU checks of the GDN split: bit equality in every case."""

from __future__ import annotations

import torch

from kernels_sm70 import gpu_checks
from kernels_sm70.gdn_split import launch, reference

WIDTHS = (1, 2, 3, 4, 7, 8, 15, 16, 17, 24, 31, 32, 64, 129, 1000)
QKV, WIDTH, HALVES = 2560, 4096, 24


def random_payloads(rows: int, width: int, device: torch.device, *, seed: int) -> torch.Tensor:
    """[rows, width] float16 of uniformly random 16-bit payloads, NaNs and denormals among them."""
    generator = torch.Generator(device=device).manual_seed(seed)
    bits = torch.randint(
        -32768, 32768, (rows, width), generator=generator, device=device, dtype=torch.int32
    )
    return bits.to(torch.int16).view(torch.float16)


def _outputs(rows: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    widths = (QKV, WIDTH - QKV, HALVES // 2, HALVES // 2)
    outputs = tuple(torch.empty(rows, n, device=device, dtype=torch.float16) for n in widths)
    gpu_checks.poison(outputs)
    return outputs


def _verify(
    qkvz: torch.Tensor, ba: torch.Tensor, outputs: tuple[torch.Tensor, ...], what: str
) -> None:
    for name, found, want in zip(
        ["qkv", "z", "b", "a"], outputs, reference.split(qkvz, ba, QKV), strict=True
    ):
        if not gpu_checks.same_bits(found, want):
            raise AssertionError(f"gdn_split {what}: {name} differs from its slice")


def every_width(report: gpu_checks.Report) -> None:
    """Every listed M, contiguous and row-strided inputs, poisoned outputs."""
    for rows in WIDTHS:
        for pad in (0, 64):
            qkvz = random_payloads(rows, WIDTH + pad, report.device, seed=rows)[:, :WIDTH]
            ba = random_payloads(rows, HALVES + pad, report.device, seed=rows + 1)[:, :HALVES]
            outputs = _outputs(rows, report.device)
            launch.check(qkvz, ba, QKV)
            launch.run(qkvz, ba, outputs)
            _verify(qkvz, ba, outputs, f"M={rows} pad={pad}")
    report.add("gdn_split", "every width, poisoned outputs", widths=list(WIDTHS), bit_equal=True)


def every_payload(report: gpu_checks.Report) -> None:
    """All 65,536 payloads through each of the four stores."""
    payloads = torch.arange(-32768, 32768, device=report.device, dtype=torch.int32).to(torch.int16)
    rows = 65536
    column = payloads.view(rows, 1)
    qkvz = column.expand(rows, WIDTH).contiguous().view(torch.float16)
    ba = column.expand(rows, HALVES).contiguous().view(torch.float16)
    outputs = _outputs(rows, report.device)
    launch.run(qkvz, ba, outputs)
    _verify(qkvz, ba, outputs, "all payloads")
    report.add("gdn_split", "all 65536 payloads through all four stores", bit_equal=True)


def graph_replay(report: gpu_checks.Report) -> None:
    """Changed inputs and poisoned outputs under graph replay, then an auxiliary stream beside
    traffic.
    """
    rows = 16
    qkvz, ba = (random_payloads(rows, n, report.device, seed=n) for n in (WIDTH, HALVES))
    outputs = _outputs(rows, report.device)

    def refill(seed: int) -> None:
        qkvz.copy_(random_payloads(rows, WIDTH, report.device, seed=1000 + seed))
        ba.copy_(random_payloads(rows, HALVES, report.device, seed=2000 + seed))

    def run() -> None:
        launch.run(qkvz, ba, outputs)

    gpu_checks.replay_with_changes(
        run,
        refill=refill,
        outputs=outputs,
        verify=lambda cycle: _verify(qkvz, ba, outputs, f"replay {cycle}"),
    )
    gpu_checks.stress_beside_traffic(
        run, verify=lambda: _verify(qkvz, ba, outputs, "auxiliary stream")
    )
    report.add(
        "gdn_split", "changed inputs under replay; 64 auxiliary-stream cycles", bit_equal=True
    )


CHECKS = (every_width, every_payload, graph_replay)
# A small subset for compute-sanitizer, which runs each kernel 10 to 100 times slower.
SANITIZER_CHECKS = (every_width,)
