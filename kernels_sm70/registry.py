# SPDX-License-Identifier: Apache-2.0
"""The operations, by folder name: an explicit list, no registration by import."""

from __future__ import annotations

from importlib import import_module

from kernels_sm70.contract import KernelSpec

OPERATIONS: tuple[str, ...] = (
    "gdn_split",
    "hyper_connection",
    "moe_grouped",
    "qsa_expand",
    "qsa_page4",
    "qsa_scorer",
    "qsa_attention",
)


def kernels_of(operation: str) -> tuple[KernelSpec, ...]:
    """The kernels an operation declares in its package."""
    specs: tuple[KernelSpec, ...] = import_module(f"kernels_sm70.{operation}").KERNELS
    return specs


def all_kernels() -> tuple[KernelSpec, ...]:
    """Every declared kernel, in registry order."""
    return tuple(spec for operation in OPERATIONS for spec in kernels_of(operation))
