# SPDX-License-Identifier: Apache-2.0
"""The torch.library namespace "kernels_sm70": one place that defines operations, once a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_LIBRARY = torch.library.Library("kernels_sm70", "FRAGMENT")
_defined: set[str] = set()


def define(
    schema: str, *, cuda: Callable[..., Any], cpu: Callable[..., Any], fake: Callable[..., Any]
) -> None:
    """Register one operation: its CUDA launch, its CPU reference and its fake implementation."""
    name = schema.split("(", 1)[0]
    if name in _defined:
        raise RuntimeError(
            f"kernels_sm70::{name} is already defined; each op.py defines its own once"
        )
    _defined.add(name)
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, cuda, "CUDA")
    _LIBRARY.impl(name, cpu, "CPU")
    torch.library.register_fake(f"kernels_sm70::{name}", fake, lib=_LIBRARY)
