"""One of two ranks: the sharded hyper-connection against the replicated one. Run by a test."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import torch

sys.path.insert(0, str(Path(__file__).parent / "qwen4exp_cpu"))
import qwen4exp_cpu

from kernels_sm70 import counters, plugin
from kernels_sm70.hyper_connection import op

HIDDEN, RANK, STREAMS = 512, 64, 4


def make(rank: int, port: int) -> torch.nn.Module:
    """A GatedResidual with the same weights on both ranks."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    qwen4exp_cpu.register()
    from vllm.models.qwen4_exp.nvidia.hyperconnection import GatedResidual, HyperConnectionConfig

    config = HyperConnectionConfig(
        hc_count=STREAMS,
        hidden_size=HIDDEN,
        params_dtype=torch.bfloat16,
        hc_lowrank=RANK,
        rms_norm_eps=1e-6,
        hc_per_branch_norm=True,
    )
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(2, rank, f"tcp://127.0.0.1:{port}", rank, "gloo")
        initialize_model_parallel(2, 1)
        module = GatedResidual(config, prefix="model.layers.0.attn_hyper_connection")
    generator = torch.Generator().manual_seed(3)
    for parameter in module.parameters():
        parameter.data.normal_(0, 0.05, generator=generator)
    return module


def main(rank: int, port: int) -> None:
    """Register, load, serve every width, and say so."""
    module = make(rank, port)
    plugin.register()
    session = plugin.active_session()
    assert session is not None
    for child in module.children():
        if hasattr(child, "quant_method"):
            child.quant_method.process_weights_after_loading(child)  # keeps the plain weight
    model = torch.nn.ModuleList([module])
    worker = SimpleNamespace(rank=rank, model_runner=SimpleNamespace(get_model=lambda: model))
    session.after_load(worker)
    shard = module.kernels_sm70_up_shard
    assert shard.shape == (STREAMS * HIDDEN // 2, RANK)
    session.after_load(worker)
    assert module.kernels_sm70_up_shard is shard  # a reload keeps the address
    counters.reset()
    for rows in (1, 2, 8, 17, 18):
        check(module, rows)
    counts = counters.snapshot()["cpu"]
    assert counts["hyper_connection.sharded_hit"] == {"2": 1, "8": 1, "17": 1}, counts
    assert counts["hyper_connection.fallback.m1"] == {"1": 1}, counts
    assert counts["hyper_connection.fallback.prefill"] == {"18": 1}, counts
    sys.stdout.write("equal at 2, 8 and 17 rows; fallback at 1 and 18\n")


def check(module: torch.nn.Module, rows: int) -> None:
    """Serve one width; where the route serves, compare with the replicated operation."""
    draw = torch.Generator().manual_seed(rows)
    widths = (STREAMS * HIDDEN, HIDDEN, STREAMS)
    state, block, logits = (torch.randn(rows, n, generator=draw).bfloat16() for n in widths)
    served = module.combine_and_mix(state, block, logits)
    if not 2 <= rows <= 17:
        return
    whole = op.boundary(
        state,
        block,
        logits,
        norm_weight=module.hc_norm.weight,
        down=module.input_mix_weight_down_block_inject.kernels_sm70_weight,
        up=module.input_mix_weight_up.kernels_sm70_weight,
        eps=1e-6,
        injection_rows=STREAMS,
    )
    for name, one, two in zip(("state", "mixed", "logits"), served, whole, strict=True):
        assert torch.equal(one, two), (rows, name)


if __name__ == "__main__":
    # as a server runs it; without AVX-512 vLLM gathers in place through torch.distributed
    with torch.no_grad():
        main(int(sys.argv[1]), int(sys.argv[2]))
