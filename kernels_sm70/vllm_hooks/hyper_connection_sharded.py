# SPDX-License-Identifier: Apache-2.0
"""The hyper-connection with its up projection sharded over the tensor-parallel ranks.

Norm and down run whole on every rank (sharding the down projection would change its summation and
compound over the layers); each rank then makes its own columns of the mix from its packed shard of
the up weight, and the pieces are gathered side by side, never summed. It is another route for the
hooks of `hyper_connection`: one of the two flags may be on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels_sm70.vllm_hooks import hyper_connection as replicated
from kernels_sm70.vllm_hooks.flags import PluginError
from kernels_sm70.vllm_hooks.hyper_connection import modules
from kernels_sm70.vllm_hooks.patching import Patch, Target

__all__ = ["COUNTERS", "OPERATIONS", "ROUTE", "modules", "patches", "prepare"]

ROUTE = "hyper_connection.sharded"
OPERATIONS = replicated.OPERATIONS
COUNTERS: tuple[str, ...] = (
    "hyper_connection.sharded_hit",
    *(name for name in replicated.COUNTERS if ".fallback." in name),
)
SHARD = "kernels_sm70_up_shard"

Method = Callable[..., Any]


def patches(*, architecture: str) -> tuple[Patch, ...]:
    """The replicated route's targets, served by this one."""
    makers = {"mix": _make_mix, "combine_and_mix": _make_combine_and_mix}
    found = []
    for patch in replicated.patches(architecture=architecture):
        target: Target = patch.target
        make = makers.get(target.path.rpartition(".")[2], patch.make)
        found.append(Patch(ROUTE, target, make))
    return tuple(found)


def prepare(module: Any, device: Any) -> None:
    """Pack this rank's columns of the up weight, and load the kernels.

    Raises:
        PluginError: a single rank has nothing to shard.
    """
    import torch
    from vllm.distributed import get_tensor_model_parallel_rank as rank_of
    from vllm.distributed import get_tensor_model_parallel_world_size as ranks_of

    from kernels_sm70.hyper_connection.weights import prepare_up_shard

    ranks = ranks_of()
    if ranks < 2:
        raise PluginError(
            "kernels_sm70: the sharded hyper-connection needs two tensor-parallel ranks or more, "
            f"found {ranks}; use VLLM_SM70_QWEN38_BATCH_HC_FP16."
        )
    up = replicated.weight_of(module.input_mix_weight_up)
    earlier = getattr(module, SHARD, None)
    setattr(module, SHARD, prepare_up_shard(up, ranks=ranks, rank=rank_of(), shard=earlier))
    for rows in replicated.WARM_ROWS:
        wide = torch.zeros(rows, up.shape[0], dtype=up.dtype, device=device)
        narrow = wide[:, : module.hidden_size].contiguous()
        if replicated.refusal(module, wide, narrow, None) is None:
            _piece(module, wide, narrow, None)


def _piece(module: Any, residual: Any, block: Any, injection: Any) -> tuple[Any, Any, Any]:
    """(R', this rank's columns of the mix [M, H / ranks], J)."""
    import torch
    from vllm.distributed import get_tensor_model_parallel_rank

    from kernels_sm70.hyper_connection import op

    del op  # importing it defines the operations
    ops, shard = torch.ops.kernels_sm70, getattr(module, SHARD)
    injected = replicated.STREAMS if module.use_combine else 0
    state, normed = ops.hc_combine_norm(
        residual, block, injection, module.hc_norm.weight, module.config.rms_norm_eps
    )
    lora, logits = ops.hc_down(normed, replicated.down_weight(module), module.lora_rank, injected)
    columns = shard.shape[0] // replicated.STREAMS
    first = get_tensor_model_parallel_rank() * columns
    piece = ops.hc_up_mix(lora, shard, normed, first)
    return state if block is not None else residual, piece, logits if injected else None


def _serve(module: Any, residual: Any, block: Any, injection: Any, *, original: Method) -> Any:
    from kernels_sm70.hyper_connection import op

    reason = replicated.refusal(module, residual, block, injection)
    if reason is not None:
        op.count_fallback(reason, residual.shape[0], residual.device)
        return original()
    from vllm.distributed import tensor_model_parallel_all_gather

    state, piece, logits = _piece(module, residual, block, injection)
    return state, tensor_model_parallel_all_gather(piece, -1), logits


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
