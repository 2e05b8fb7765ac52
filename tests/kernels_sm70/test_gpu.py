# SPDX-License-Identifier: Apache-2.0
"""Every on-GPU check as a test, skipped without a GPU; `make kernels-gpu` runs them all."""

from __future__ import annotations

import importlib
import importlib.util

import pytest
import torch

from kernels_sm70.gpu_checks import Report
from kernels_sm70.registry import OPERATIONS

CHECKS = [
    pytest.param(operation, attribute, index, id=f"{operation}-{attribute.lower()}-{index}")
    for operation in OPERATIONS
    for attribute in ("CHECKS", "SANITIZER_CHECKS")
    for index in range(
        len(getattr(importlib.import_module(f"kernels_sm70.{operation}.gpu"), attribute))
    )
]


def test_every_operation_has_checks_for_the_gpu() -> None:
    """An operation without checks, sanitizer subset or bench would be skipped in silence."""
    for operation in OPERATIONS:
        checks = importlib.import_module(f"kernels_sm70.{operation}.gpu")
        bench = importlib.import_module(f"kernels_sm70.{operation}.bench")
        assert checks.CHECKS, operation
        assert checks.SANITIZER_CHECKS, operation
        assert bench.CASES, operation


@pytest.mark.gpu
@pytest.mark.parametrize(("operation", "attribute", "index"), CHECKS)
def test_on_the_gpu(operation: str, attribute: str, index: int) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: kernels run here only in the CPU emulation")
    module = importlib.import_module(f"kernels_sm70.{operation}.gpu")
    report = Report(torch.device("cuda", torch.cuda.current_device()))
    getattr(module, attribute)[index](report)
    torch.cuda.synchronize()
    assert report.rows
