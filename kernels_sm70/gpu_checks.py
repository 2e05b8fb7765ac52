# SPDX-License-Identifier: Apache-2.0
"""Measures and stress patterns shared by the on-GPU checks (and the CPU oracle tests)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

ULP_FLOOR = 1 / 16
NAN16 = 0x7FFF  # a NaN payload in fp16 and in bf16


@dataclass(slots=True)
class Report:
    """What the checks found: one row a check, kept in the results file."""

    device: torch.device
    rows: list[dict[str, object]] = field(default_factory=list)

    def add(self, operation: str, check: str, **facts: object) -> None:
        """Record a passed check with its measured numbers."""
        self.rows.append({"operation": operation, "check": check, **facts})


def relative_l2(found: torch.Tensor, expected: torch.Tensor) -> float:
    """||found - expected|| / ||expected|| in float64; NaN or inf in `found` gives inf."""
    a, b = found.double(), expected.double()
    if not bool(torch.isfinite(a).all()):
        return float("inf")
    scale = float(b.norm())
    return float((a - b).norm()) / scale if scale else float((a - b).norm())


def max_ulp(found: torch.Tensor, expected: torch.Tensor) -> int:
    """Largest distance in representable values between `found` and f(expected), in found's
    dtype, over the elements of at least ULP_FLOOR of the tensor's root mean square.
    """
    rounded = expected.to(found.dtype)
    # Near zero a sum's error is many units of a tiny value; such elements are left to the L2 bound.
    large = expected.abs() >= ULP_FLOOR * float(expected.double().square().mean().sqrt())

    def ordered(values: torch.Tensor) -> torch.Tensor:
        bits = values.contiguous().view(torch.int16).to(torch.int32)
        # Negative floats count down from the top; mapping them below zero makes distance a
        # subtraction.
        return torch.where(bits < 0, -(bits & 0x7FFF), bits)

    distance = (ordered(found) - ordered(rounded)).abs()[large]
    return int(distance.max()) if distance.numel() else 0


def assert_close(
    found: torch.Tensor,
    expected: torch.Tensor,
    *,
    rel_l2: float,
    what: str,
    ulp: int | None = None,
) -> dict[str, float]:
    """Raise AssertionError beyond the stated relative L2 or ulp; return both measures."""
    measured = relative_l2(found, expected)
    if ulp is not None and max_ulp(found, expected) > ulp:
        distance = max_ulp(found, expected)
        raise AssertionError(f"{what}: {distance} ulp from the oracle, at most {ulp} are allowed")
    if not measured <= rel_l2:
        raise AssertionError(f"{what}: relative L2 {measured:.3e} exceeds the bound {rel_l2:.1e}")
    return {
        "rel_l2": measured,
        "max_ulp": float(max_ulp(found, expected)) if found.element_size() == 2 else -1.0,
    }


def same_bits(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Bitwise equality of 16-bit tensors, NaN payloads included."""
    return bool(
        torch.equal(found.contiguous().view(torch.int16), expected.contiguous().view(torch.int16))
    )


def poison(tensors: Sequence[torch.Tensor]) -> None:
    """Fill 16-bit tensors with NaN payloads and float32 ones with NaN: an unwritten element
    shows.
    """
    for tensor in tensors:
        if tensor.element_size() == 2:
            tensor.view(torch.int16).fill_(NAN16)
        else:
            tensor.fill_(float("nan"))


def capture(run: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """Warm `run` up on a side stream and capture it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def replay_with_changes(
    run: Callable[[], None],
    *,
    refill: Callable[[int], None],
    outputs: Sequence[torch.Tensor],
    verify: Callable[[int], None],
    cycles: int = 8,
) -> None:
    """Capture once, then for each cycle change the inputs, poison the outputs, replay and
    verify.
    """
    refill(0)
    graph = capture(run)
    for cycle in range(cycles):
        refill(cycle + 1)
        poison(outputs)
        graph.replay()
        torch.cuda.synchronize()
        verify(cycle)


def stress_beside_traffic(
    run: Callable[[], None], *, verify: Callable[[], None], cycles: int = 64
) -> None:
    """Run on an auxiliary stream while another stream keeps the card busy; verify after every
    cycle.
    """
    auxiliary, traffic = torch.cuda.Stream(), torch.cuda.Stream()
    ballast = torch.randn(2048, 2048, device="cuda")
    torch.cuda.synchronize()
    for _ in range(cycles):
        with torch.cuda.stream(traffic):
            ballast = torch.nn.functional.normalize(ballast @ ballast, dim=1)
        auxiliary.wait_stream(torch.cuda.current_stream())  # `verify` may have poisoned the outputs
        with torch.cuda.stream(auxiliary):
            run()
        auxiliary.synchronize()
        verify()
    torch.cuda.synchronize()
