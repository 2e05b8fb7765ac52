# SPDX-License-Identifier: Apache-2.0
"""The `vllm.general_plugins` entry point: vLLM calls `register()` in each of its processes.

With every flag off nothing of vLLM is imported, nothing is replaced and no thread is started. With
a flag on, everything is checked first - values, vLLM's version, the device, every hook - and then
replaced together. A refusal is raised from `register()`, which stops the server before a model is
loaded; an import at the top of this file that failed would only be logged, so there is none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels_sm70.vllm_hooks.session import Session

_session: Session | None = None
_registered_flags: dict[str, bool] | None = None


def register() -> None:
    """Apply what the environment asks for, once in this process.

    Raises:
        PluginError: what was asked cannot be had, or the flags changed since the first call.
    """
    global _session, _registered_flags
    from kernels_sm70.vllm_hooks.flags import PluginError, cpu_reference_wanted, read_flags

    flags = read_flags(os.environ)
    if _registered_flags is not None:
        if flags != _registered_flags:
            raise PluginError(
                f"kernels_sm70: registered with {_registered_flags}, called again with {flags}. "
                "Set the flags before the server starts."
            )
        return
    reference = cpu_reference_wanted(os.environ)
    if any(flags.values()):
        session = _build_session(flags, cpu_reference=reference)
        session.patch_set.apply()
        _session = session
    _registered_flags = flags


def unregister() -> None:
    """Put everything back; for tests."""
    global _session, _registered_flags
    if _session is not None:
        _session.patch_set.undo()
        if _session.writer is not None:
            _session.writer.close()
    _session = _registered_flags = None


def active_session() -> Session | None:
    """The session of this process, or None when every flag is off."""
    return _session


def _build_session(flags: dict[str, bool], *, cpu_reference: bool) -> Session:
    from importlib import import_module
    from importlib.metadata import PackageNotFoundError, version

    from kernels_sm70.vllm_hooks import environment
    from kernels_sm70.vllm_hooks.flags import FLAGS
    from kernels_sm70.vllm_hooks.session import Session

    vllm_version = environment.check_vllm_version()
    environment.check_single_plugin()
    wanted = [flag for flag in FLAGS if flags[flag.variable]]
    hooks = tuple(import_module(f"kernels_sm70.vllm_hooks.{flag.hook}") for flag in wanted)
    operations = [name for hook in hooks for name in hook.OPERATIONS]
    architecture = environment.check_device(operations, cpu_reference=cpu_reference)
    try:
        plugin_version = version("evalharness")
    except PackageNotFoundError:  # run from a source tree
        plugin_version = "0+source"
    return Session(flags, hooks, vllm_version, architecture, plugin_version)
