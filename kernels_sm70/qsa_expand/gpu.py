# SPDX-License-Identifier: Apache-2.0
"""On-GPU checks of the expansion: integer equality in every case."""

from __future__ import annotations

import torch

from kernels_sm70 import gpu_checks
from kernels_sm70.qsa_expand import WIDTH, launch, reference, synthetic

WIDTHS = (*range(1, 18), 24, 64, 257)
CONTEXTS = (1, 3, 4, 5, 2047, 2048, 8192, 131072, 262144, 1 << 20)
POISON = -123456789


def _verify(found: torch.Tensor, inputs: synthetic.Selection, what: str) -> None:
    expected = reference.expand(*(tensor.cpu() for tensor in inputs))
    if not torch.equal(found.cpu(), expected):
        raise AssertionError(f"qsa_expand {what}: differs from the oracle")


def _run(inputs: synthetic.Selection, out: torch.Tensor, what: str) -> None:
    out.fill_(POISON)
    launch.check(*inputs, out)
    launch.run(*inputs, out)
    _verify(out, inputs, what)


def every_case(report: gpu_checks.Report) -> None:
    """Every M and context, each residue, aligned, strided and unaligned outputs, padded rows."""
    device = report.device
    for context in CONTEXTS:
        for rows in WIDTHS if context == 8192 else (4, 16):
            positions = [max(p, -1) for p in synthetic.positions_at(context, rows)]
            for wide in (False, True):
                made = synthetic.selection(positions, seed=rows, wide=wide)
                inputs = synthetic.on_device(made, device)
                wider = torch.empty(rows, WIDTH + 5, dtype=torch.int32, device=device)
                for out in (
                    torch.empty(rows, WIDTH, dtype=torch.int32, device=device),
                    wider[:, :WIDTH],
                    wider[:, 1 : WIDTH + 1],
                ):
                    _run(inputs, out, f"M={rows} context={context} wide={wide}")
    report.add(
        "qsa_expand",
        "every M and context",
        widths=list(WIDTHS),
        contexts=list(CONTEXTS),
        integer_equal=True,
    )


def residues_and_edges(report: gpu_checks.Report) -> None:
    """The four residues apart, padded rows, positions at and beyond int32."""
    for residue in range(4):
        made = synthetic.selection([4 * 700 + residue - 1 + 4 * i for i in range(16)])
        _run(
            synthetic.on_device(made, report.device),
            _fresh(16, report.device),
            f"residue {residue}",
        )
    blocks, _, visible = synthetic.selection([100, 200, 300, 400])
    positions = torch.tensor([-1, 2**31 - 2, 2**31 - 1, 2**40])
    inputs = synthetic.on_device((blocks, positions, visible), report.device)
    _run(inputs, _fresh(4, report.device), "int32 edges")
    report.add("qsa_expand", "four residues apart; padded rows; int32 edges", integer_equal=True)


def _fresh(rows: int, device: torch.device) -> torch.Tensor:
    return torch.empty(rows, WIDTH, dtype=torch.int32, device=device)


def graph_replay(report: gpu_checks.Report) -> None:
    """Changed selections under replay, poisoned output."""
    made = synthetic.selection(synthetic.positions_at(8192, 16))
    held = synthetic.on_device(made, report.device)
    out = _fresh(16, report.device)

    def refill(seed: int) -> None:
        positions = synthetic.positions_at(8192 + 1000 * seed, 16)
        for old, new in zip(held, synthetic.selection(positions, seed=seed), strict=True):
            old.copy_(new)
        out.fill_(POISON)

    def run() -> None:
        launch.run(*held, out)

    gpu_checks.replay_with_changes(
        run,
        refill=refill,
        outputs=(),
        verify=lambda cycle: _verify(out, held, f"replay {cycle}"),
    )
    gpu_checks.stress_beside_traffic(
        run, verify=lambda: _verify(out, held, "auxiliary stream"), cycles=8
    )
    report.add("qsa_expand", "changed inputs under replay; auxiliary stream", integer_equal=True)


CHECKS = (every_case, residues_and_edges, graph_replay)
SANITIZER_CHECKS = (residues_and_edges,)
