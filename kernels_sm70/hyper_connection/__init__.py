# SPDX-License-Identifier: Apache-2.0
"""placeholder until the first kernel lands."""
from kernels_sm70.contract import KernelSpec
KERNELS: tuple[KernelSpec, ...] = ()
