# SPDX-License-Identifier: Apache-2.0
"""Route the routed experts of a decode batch through kernels_sm70::moe_grouped.

The hook is RoutedExperts.forward_modular: the router has chosen, the shared expert runs beside.
Served is the plain layout [E, 2I, H], [E, H, I] as the checkpoint has it, which vLLM's Triton
backend keeps. Backends that pack the weights for themselves are left alone and counted; the CPU
backend packs too, so on the CPU the plain weights are kept beside its own for the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kernels_sm70.vllm_hooks.patching import Patch, Target

ROUTE = "moe_grouped"
OPERATIONS: tuple[str, ...] = ("moe_grouped",)
REASONS = ("m", "contract", "layout")
COUNTERS: tuple[str, ...] = (f"{ROUTE}.hit", *(f"{ROUTE}.fallback.{reason}" for reason in REASONS))
FUSED_MOE = "vllm.model_executor.layers.fused_moe"
ATTRIBUTE = "kernels_sm70_experts"
WARM_ROWS = (2, 32)  # few routes plan inside W13, more have a plan kernel

Method = Callable[..., Any]


def patches(*, architecture: str) -> tuple[Patch, ...]:
    """The forward; on the CPU also the step that packs the weights."""
    forward = Target(
        f"{FUSED_MOE}.routed_experts",
        "RoutedExperts.forward_modular",
        ("self", "x", "topk_weights", "topk_ids", "shared_experts", "shared_experts_input"),
    )
    found = [Patch(ROUTE, forward, _make_forward)]
    if architecture == "cpu":
        loaded = Target(
            f"{FUSED_MOE}.unquantized_fused_moe_method",
            "UnquantizedFusedMoEMethod.process_weights_after_loading",
            ("self", "layer"),
        )
        found.append(Patch(ROUTE, loaded, _make_keep_plain))
    return tuple(found)


def modules(model: Any) -> Iterator[Any]:
    """The routed experts of the layers."""
    for module in model.modules():
        if type(module).__name__ == "RoutedExperts":
            yield module


def prepare(module: Any, device: Any) -> None:
    """Keep the plain weights where the backend left them so, and load the kernels."""
    import torch

    if getattr(module, ATTRIBUTE, None) is None:
        plain = _is_plain(module) and _backend(module) == "TRITON"
        setattr(module, ATTRIBUTE, _experts(module) if plain else None)
    experts = getattr(module, ATTRIBUTE)
    if experts is None:
        return
    from kernels_sm70.moe_grouped import op

    for rows in WARM_ROWS:
        x = torch.zeros(rows, module.hidden_size, dtype=experts.w2.dtype, device=device)
        ids = torch.zeros(rows, module.top_k, dtype=torch.int32, device=device)
        weights = torch.zeros(rows, module.top_k, dtype=torch.float32, device=device)
        if op.route(x, experts, weights, ids) is None:
            op.moe_or(x.clone, x, experts, topk_weights=weights, topk_ids=ids)


def _backend(module: Any) -> str:
    backend = getattr(module.quant_method, "unquantized_backend", None)
    return str(getattr(backend, "name", "none"))


def _is_plain(module: Any) -> bool:
    """Unquantised SwiGLU experts, all of them on this rank, without biases."""
    config = module.moe_config
    return (
        type(module.quant_method).__name__ == "UnquantizedFusedMoEMethod"
        and module.activation.value == "silu"
        and not config.has_bias
        and module.expert_map is None
        and not module.apply_router_weight_on_input
        and getattr(module, "swiglu_limit", None) is None
        and module.local_num_experts == module.global_num_experts
    )


def _experts(module: Any) -> Any:
    from kernels_sm70.moe_grouped.launch import Experts

    w13, w2 = module.w13_weight.data, module.w2_weight.data
    return Experts(w13, None, None, w2, None, None)


def _make_keep_plain(original: Method) -> Method:
    def process_weights_after_loading(self: Any, layer: Any) -> Any:
        if _is_plain(layer):
            from kernels_sm70.moe_grouped.launch import Experts

            w13, w2 = layer.w13_weight.detach().clone(), layer.w2_weight.detach().clone()
            setattr(layer, ATTRIBUTE, Experts(w13, None, None, w2, None, None))
        return original(self, layer)

    return process_weights_after_loading


def _make_forward(original: Method) -> Method:
    def forward_modular(
        self: Any,
        x: Any,
        topk_weights: Any,
        topk_ids: Any,
        shared_experts: Any = None,
        shared_experts_input: Any = None,
    ) -> Any:
        def stock() -> Any:
            return original(self, x, topk_weights, topk_ids, shared_experts, shared_experts_input)

        experts = getattr(self, ATTRIBUTE, None)
        if experts is None or _shared_inside(shared_experts, shared_experts_input):
            from kernels_sm70 import counters

            counters.count(f"{ROUTE}.fallback.layout", x.shape[0], x.device)
            return stock()
        import torch

        from kernels_sm70.moe_grouped import op

        return op.moe_or(
            stock,
            x,
            experts,
            topk_weights=topk_weights.to(torch.float32),
            topk_ids=topk_ids.to(torch.int32),
        )

    return forward_modular


def _shared_inside(shared_experts: Any, shared_experts_input: Any) -> bool:
    """Whether stock would run the shared expert inside this call (expert-parallel overlap)."""
    if shared_experts is None:
        return False
    order = shared_experts._determine_shared_experts_order(shared_experts_input)
    return str(order.name) == "MK_INTERNAL_OVERLAPPED"
