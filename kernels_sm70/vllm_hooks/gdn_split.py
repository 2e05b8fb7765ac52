# SPDX-License-Identifier: Apache-2.0
"""Route the GDN layer's input split through kernels_sm70::gdn_split_zba.

Stock vLLM makes three copies at M > 1 (b, a, and z inside the gated norm) and leaves q|k|v a
strided view, which its convolution takes; the route makes the three in one launch and leaves the
same view. The payloads are only moved, so the model's output keeps every bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kernels_sm70.vllm_hooks.patching import Patch, Target

ROUTE = "gdn_split"
OPERATIONS: tuple[str, ...] = ("gdn_split",)
REASONS = ("m", "dtype", "shape", "layout")
COUNTERS: tuple[str, ...] = (f"{ROUTE}.hit", *(f"{ROUTE}.fallback.{reason}" for reason in REASONS))
LAYER = "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn"

Forward = Callable[[Any, Any], Any]


def patches(*, architecture: str) -> tuple[Patch, ...]:
    """The layer's forward of this device; it is bound when the layer is built."""
    method = "forward_cpu" if architecture == "cpu" else "forward_cuda"
    core = "cpu_gdn_attention_core" if architecture == "cpu" else "qwen_gdn_attention_core"
    target = Target(LAYER, f"QwenGatedDeltaNetAttention.{method}", ("self", "hidden_states"))
    return (Patch(ROUTE, target, lambda original: _make_forward(original, core)),)


def modules(model: Any) -> Iterator[Any]:
    """The gated delta net layers."""
    for module in model.modules():
        if type(module).__name__ == "QwenGatedDeltaNetAttention":
            yield module


def prepare(module: Any, device: Any) -> None:
    """Load the kernel: one call on zeros of this layer's widths."""
    import torch

    from kernels_sm70.gdn_split import op

    qkv, z = _widths(module)
    dtype = module.out_proj.weight.dtype
    heads = module.num_v_heads // module.tp_size
    projected = torch.zeros(2, qkv + z, dtype=dtype, device=device)
    gates = torch.zeros(2, 2 * heads, dtype=dtype, device=device)
    if op.route(projected, gates, qkv) is None:
        torch.ops.kernels_sm70.gdn_split_zba(projected, gates, qkv)


def _widths(module: Any) -> tuple[int, int]:
    qkv = 2 * module.key_dim + module.value_dim
    return qkv // module.tp_size, module.value_dim // module.tp_size


def _refusal(layer: Any, hidden_states: Any) -> str | None:
    """Why the original forward must run, from shapes and settings only; None when it need not."""
    if hidden_states.shape[0] < 2:
        return "m"
    if hidden_states.element_size() != 2:
        return "dtype"
    packed = hasattr(layer, "in_proj_qkvz") and hasattr(layer, "in_proj_ba")
    replicated_ba = layer.disable_tp_for_ba_proj and layer.tp_size > 1
    other_path = layer.gqa_interleaved_layout or layer.enable_fused_gdn_spec_decode
    return "layout" if not packed or replicated_ba or other_path else None


def _make_forward(original: Forward, core: str) -> Forward:
    def forward(self: Any, hidden_states: Any) -> Any:
        import torch
        from vllm.utils.torch_utils import _encode_layer_name

        from kernels_sm70 import counters
        from kernels_sm70.gdn_split import op

        rows = hidden_states.shape[0]
        reason = _refusal(self, hidden_states)
        if reason is not None:
            counters.count(f"{ROUTE}.fallback.{reason}", rows, hidden_states.device)
            return original(self, hidden_states)
        projected, _ = self.in_proj_qkvz(hidden_states)
        gates, _ = self.in_proj_ba(hidden_states)
        qkv_width, _ = _widths(self)
        if op.route(projected, gates, qkv_width) is not None:
            counters.count(f"{ROUTE}.fallback.shape", rows, hidden_states.device)
            return original(self, hidden_states)
        z, b, a = torch.ops.kernels_sm70.gdn_split_zba(projected, gates, qkv_width)
        heads = self.num_v_heads // self.tp_size
        # Zeros, not empty, as in the original: a padded row that the core leaves out stays finite.
        output = torch.zeros(
            (rows, heads, self.head_v_dim), dtype=hidden_states.dtype, device=hidden_states.device
        )
        getattr(torch.ops.vllm, core)(
            projected[:, :qkv_width], b, a, output, _encode_layer_name(self.prefix)
        )
        return self._output_projection(output, z.view(rows, heads, self.head_v_dim))

    return forward
