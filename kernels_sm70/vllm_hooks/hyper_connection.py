# SPDX-License-Identifier: Apache-2.0
"""Route GatedResidual's layer boundary (combine, norm, down, inject, up, mix) through hc_boundary.

The hooks are `mix` and `combine_and_mix` of the class, so the mixers of every layer, of the model's
end and of a draft model are served. Stock vLLM has a fused down projection of its own on Hopper;
it runs inside the original methods, so the route replaces it and the fallback keeps it. Every
tensor-parallel rank holds whole hyper-connection weights here, as stock vLLM does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kernels_sm70.vllm_hooks.patching import Patch, Target

ROUTE = "hyper_connection"
OPERATIONS: tuple[str, ...] = ("hyper_connection",)
REASONS = ("m1", "prefill", "dtype", "shape", "layout")
COUNTERS: tuple[str, ...] = (f"{ROUTE}.hit", *(f"{ROUTE}.fallback.{reason}" for reason in REASONS))
MODULE = "vllm.models.qwen4_exp.nvidia.hyperconnection"
STREAMS = 4
LINEAR = "vllm.model_executor.layers.linear"
KEPT = "kernels_sm70_weight"
WARM_ROWS = (2, 9, 17)  # one, two and three token tiles: each is a kernel of its own

Method = Callable[..., Any]


def patches(*, architecture: str) -> tuple[Patch, ...]:
    """Both ways into a boundary; on the CPU also the step that packs the weights away."""
    mix = Target(MODULE, "GatedResidual.mix", ("self", "hidden_states"))
    combine = Target(
        MODULE,
        "GatedResidual.combine_and_mix",
        ("self", "hidden_states", "prev_block_output", "prev_injection"),
    )
    found = [Patch(ROUTE, mix, _make_mix), Patch(ROUTE, combine, _make_combine_and_mix)]
    if architecture == "cpu":
        loaded = Target(
            LINEAR, "UnquantizedLinearMethod.process_weights_after_loading", ("self", "layer")
        )
        found.append(Patch(ROUTE, loaded, _make_keep_plain))
    return tuple(found)


def modules(model: Any) -> Iterator[Any]:
    """The hyper-connections of the layers, and the last mixer."""
    for module in model.modules():
        if type(module).__module__ == MODULE and type(module).__name__ == "GatedResidual":
            yield module


def prepare(module: Any, device: Any) -> None:
    """Load the kernels: one boundary on zeros for each width of tile."""
    import torch

    down, up = down_weight(module), weight_of(module.input_mix_weight_up)
    for rows in WARM_ROWS:
        wide = torch.zeros(rows, up.shape[0], dtype=up.dtype, device=device)
        narrow = wide[:, : module.hidden_size].contiguous()
        if refusal(module, wide, narrow, None) is None:
            _boundary(module, wide, narrow, None, down=down, up=up)


def weight_of(linear: Any) -> Any:
    """The projection's plain weight [out, in]; the CPU build keeps only a packed one of its own."""
    return getattr(linear, KEPT, linear.weight)


def down_weight(module: Any) -> Any:
    if module.use_combine:
        return weight_of(module.input_mix_weight_down_block_inject)
    return weight_of(module.input_mix_weight_down)


def _make_keep_plain(original: Method) -> Method:
    def process_weights_after_loading(self: Any, layer: Any) -> Any:
        if "input_mix_weight_" in getattr(layer, "prefix", ""):
            setattr(layer, KEPT, layer.weight.detach().clone())
        return original(self, layer)

    return process_weights_after_loading


def refusal(module: Any, residual: Any, block: Any, injection: Any) -> str | None:
    """Why the original must run, from shapes, types and layout only; None when the kernels may."""
    from kernels_sm70.hyper_connection import op

    injected = STREAMS if module.use_combine else 0
    up = weight_of(module.input_mix_weight_up)
    reason: str | None = op.route(residual, down_weight(module), up, injected)
    if reason is not None:
        return reason
    others = [tensor for tensor in (block, injection) if tensor is not None]
    if module.hc_count != STREAMS:
        return "shape"
    if any(tensor.dtype != residual.dtype for tensor in (*others, module.hc_norm.weight)):
        return "dtype"
    if any(tensor.stride(-1) != 1 for tensor in others):
        return "layout"
    if block is not None and (block.stride(0) % 8 or block.data_ptr() % 16):
        return "layout"
    return None


def _boundary(module: Any, residual: Any, block: Any, injection: Any, *, down: Any, up: Any) -> Any:
    from kernels_sm70.hyper_connection import op

    state, mixed, logits = op.boundary(
        residual,
        block,
        injection,
        norm_weight=module.hc_norm.weight,
        down=down,
        up=up,
        eps=module.config.rms_norm_eps,
        injection_rows=STREAMS if module.use_combine else 0,
    )
    return state, mixed, logits if module.use_combine else None


def _serve(module: Any, residual: Any, block: Any, injection: Any, *, original: Method) -> Any:
    reason = refusal(module, residual, block, injection)
    if reason is not None:
        from kernels_sm70.hyper_connection import op

        op.count_fallback(reason, residual.shape[0], residual.device)
        return original()
    up = weight_of(module.input_mix_weight_up)
    return _boundary(module, residual, block, injection, down=down_weight(module), up=up)


def _make_mix(original: Method) -> Method:
    def mix(self: Any, hidden_states: Any) -> Any:
        def stock() -> Any:
            return original(self, hidden_states)

        return _serve(self, hidden_states, None, None, original=stock)

    return mix


def _make_combine_and_mix(original: Method) -> Method:
    def combine_and_mix(
        self: Any, hidden_states: Any, prev_block_output: Any, prev_injection: Any
    ) -> Any:
        def stock() -> Any:
            return original(self, hidden_states, prev_block_output, prev_injection)

        return _serve(self, hidden_states, prev_block_output, prev_injection, original=stock)

    return combine_and_mix
