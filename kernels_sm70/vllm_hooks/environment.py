# SPDX-License-Identifier: Apache-2.0
"""Is this the vLLM, the device and the only plugin that the hooks were written for?"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points

from kernels_sm70.vllm_hooks.flags import CPU_REFERENCE, PluginError

VLLM_VERSION = "0.32.0"
ENTRY_GROUP, ENTRY_NAME = "vllm.general_plugins", "kernels_sm70"
ENTRY_VALUE = "kernels_sm70.plugin:register"


def check_vllm_version() -> str:
    """Return vLLM's version; raise PluginError unless it is the one whose source was read."""
    import vllm

    found = str(vllm.__version__)
    if found.split("+")[0] != VLLM_VERSION:
        raise PluginError(
            f"kernels_sm70: vLLM {found} is installed, the hooks are written for {VLLM_VERSION}. "
            "Turn the VLLM_SM70_* flags off or install that version."
        )
    return found


def check_single_plugin() -> None:
    """Raise PluginError if another distribution registers a plugin under our name."""
    points = entry_points(group=ENTRY_GROUP, name=ENTRY_NAME)
    others = sorted({point.value for point in points} - {ENTRY_VALUE})
    if others:
        raise PluginError(
            f"kernels_sm70: another plugin of this name is installed: {', '.join(others)}. "
            "Uninstall one."
        )


def check_device(operations: Iterable[str], *, cpu_reference: bool) -> str:
    """Return "cpu" or the architecture ("sm_90") that the operations will be compiled for.

    Asks vLLM's platform, which reads the capability without creating a CUDA context (a
    context made here would forbid vLLM to fork its workers).

    Raises:
        PluginError: no CUDA device and no leave to run the reference, or an architecture that
            an operation is not built for.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        if not cpu_reference:
            raise PluginError(
                "kernels_sm70: a route's flag is on, but this vLLM serves on the CPU. Turn the "
                f"flags off; or, for a test without a GPU, set {CPU_REFERENCE}=1 to run the "
                "operations' references."
            )
        return "cpu"
    capability = current_platform.get_device_capability() if current_platform.is_cuda() else None
    if capability is None:
        raise PluginError(
            "kernels_sm70: a route's flag is on, but the platform is "
            f"{current_platform.device_name!r} without a CUDA device. Turn the flags off."
        )
    architecture = f"sm_{capability.major}{capability.minor}"
    _check_architecture(operations, architecture)
    return architecture


def _check_architecture(operations: Iterable[str], architecture: str) -> None:
    from kernels_sm70.registry import OPERATIONS, kernels_of

    for operation in operations:
        if operation not in OPERATIONS:
            raise PluginError(
                f"kernels_sm70: the operation {operation} is not in this build; turn its flag off."
            )
        built = sorted({arch for spec in kernels_of(operation) for arch in spec.arches})
        if architecture not in built:
            raise PluginError(
                f"kernels_sm70: {operation} is built for {', '.join(built)}, this device is "
                f"{architecture}. Turn its flag off."
            )
