# SPDX-License-Identifier: Apache-2.0
"""The plugin's environment variables: one a route, all off unless set to 1.

Imports nothing outside the standard library: with every flag off this is all that is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "VLLM_SM70_"
CPU_REFERENCE = "KERNELS_SM70_CPU_REFERENCE"
_VALUES = {"": False, "0": False, "1": True}


class PluginError(RuntimeError):
    """The plugin refuses to load; the message says what was asked, found, and what to do."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One switch: its variable, the module under vllm_hooks that serves it, and what it does."""

    variable: str
    hook: str
    summary: str


FLAGS: tuple[Flag, ...] = (
    Flag("VLLM_SM70_QWEN38_BATCH_HC_FP16", "hyper_connection", "batched hyper-connections"),
    Flag(
        "VLLM_SM70_QWEN38_BATCH_HC_SHARDED",
        "hyper_connection_sharded",
        "batched hyper-connections, the up projection sharded over the ranks",
    ),
    Flag("VLLM_SM70_GDN_BATCH_SPLIT_COPY", "gdn_split", "GDN split copy in one launch"),
    Flag("VLLM_SM70_QWEN38_GROUPED_MOE", "moe_grouped", "grouped MoE decode"),
    Flag("VLLM_SM70_QWEN38_QSA_EXPAND", "qsa_expand", "QSA block index expansion"),
    Flag("VLLM_SM70_QWEN38_QSA_SCORER", "qsa_scorer", "QSA block scorer"),
)


def read_flags(environ: Mapping[str, str]) -> dict[str, bool]:
    """Return {variable: on} for every flag.

    Raises:
        PluginError: a value other than 0 and 1, or a variable with our prefix that is not known
            (a misspelt flag would otherwise serve the control under the candidate's name).
    """
    known = {flag.variable for flag in FLAGS}
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
    if unknown:
        raise PluginError(
            f"kernels_sm70: unknown variable {', '.join(unknown)}; known: "
            f"{', '.join(sorted(known))}. Correct the name or unset it."
        )
    return {flag.variable: _read(flag.variable, environ) for flag in FLAGS}


def cpu_reference_wanted(environ: Mapping[str, str]) -> bool:
    """Whether the operations' CPU reference may stand in for the kernels (tests without a GPU)."""
    return _read(CPU_REFERENCE, environ)


def _read(variable: str, environ: Mapping[str, str]) -> bool:
    value = environ.get(variable, "")
    if value not in _VALUES:
        raise PluginError(
            f"kernels_sm70: {variable}={value!r}; expected 0 or 1 (unset means 0). "
            "Correct the value."
        )
    return _VALUES[value]
