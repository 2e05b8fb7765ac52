"""The plugin on vLLM's own classes, without a GPU: the operations' references run in the hooks."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed in this environment", allow_module_level=True)

import torch
import vllm
from vllm.platforms import current_platform

from kernels_sm70 import counters, plugin
from kernels_sm70.vllm_hooks import moe_grouped as moe_hook
from kernels_sm70.vllm_hooks.flags import CPU_REFERENCE, FLAGS, PluginError

sys.path.insert(0, str(Path(__file__).parent / "qwen4exp_cpu"))
import qwen4exp_cpu

HC, GDN, MOE, EXPAND, SCORER = (
    "VLLM_SM70_QWEN38_BATCH_HC_FP16",
    "VLLM_SM70_GDN_BATCH_SPLIT_COPY",
    "VLLM_SM70_QWEN38_GROUPED_MOE",
    "VLLM_SM70_QWEN38_QSA_EXPAND",
    "VLLM_SM70_QWEN38_QSA_SCORER",
)
SHARDED = "VLLM_SM70_QWEN38_BATCH_HC_SHARDED"
HIDDEN, RANK, STREAMS = 512, 64, 4
TARGETS = (
    ("vllm.models.qwen4_exp.nvidia.hyperconnection", "GatedResidual", "mix"),
    ("vllm.models.qwen4_exp.nvidia.hyperconnection", "GatedResidual", "combine_and_mix"),
    (
        "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn",
        "QwenGatedDeltaNetAttention",
        "forward_cpu",
    ),
    ("vllm.model_executor.layers.fused_moe.routed_experts", "RoutedExperts", "forward_modular"),
    ("vllm.v1.worker.gpu_worker", "Worker", "load_model"),
    ("vllm.v1.worker.cpu_worker", "CPUWorker", "compile_or_warm_up_model"),
)

pytestmark = pytest.mark.skipif(
    not current_platform.is_cpu(), reason="this file is for vLLM's CPU build"
)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No flag from outside, nothing left replaced, counters at zero."""
    for name in [name for name in os.environ if name.startswith("VLLM_SM70_")]:
        monkeypatch.delenv(name)
    counters.reset()
    yield
    plugin.unregister()


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Any:
    """register(FLAG, ...) with the CPU reference allowed."""

    def call(*flags: str) -> None:
        monkeypatch.setenv(CPU_REFERENCE, "1")
        for flag in flags:
            monkeypatch.setenv(flag, "1")
        plugin.register()

    return call


def held() -> list[Any]:
    found = []
    for module, owner, attribute in TARGETS:
        found.append(vars(getattr(importlib.import_module(module), owner))[attribute])
    return found


def counts() -> dict[str, dict[str, int]]:
    return {name: by_m for name, by_m in counters.snapshot().get("cpu", {}).items() if by_m}


@pytest.fixture(scope="session")
def residual() -> Any:
    """A GatedResidual of vLLM with random weights, packed as the CPU build packs them."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    qwen4exp_cpu.register()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
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
        if not torch.distributed.is_initialized():
            from vllm.utils.network_utils import get_open_port

            address = f"tcp://127.0.0.1:{get_open_port()}"
            init_distributed_environment(1, 0, address, 0, "gloo")
            initialize_model_parallel(1, 1)
        made = {}
        for name, combine in (("layer", True), ("last", False)):
            made[name] = GatedResidual(config, combine, prefix="model.layers.0.hyper_connection")
    generator = torch.Generator().manual_seed(3)
    for module in made.values():
        for parameter in module.parameters():
            parameter.data.normal_(0, 0.05, generator=generator)
        for child in module.children():
            if hasattr(child, "quant_method"):
                # What the plugin keeps while the flag is on: the plain weight.
                child.kernels_sm70_weight = child.weight.detach().clone()
                child.quant_method.process_weights_after_loading(child)
    return made


def inputs(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    widths = (STREAMS * HIDDEN, HIDDEN, STREAMS)
    drawn = (torch.randn(rows, n, generator=generator).bfloat16() for n in widths)
    return tuple(drawn)  # type: ignore[return-value]


def test_flags_off_leave_vllm_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    before = held()
    for flag in FLAGS:
        monkeypatch.setenv(flag.variable, "0")
    plugin.register()
    assert all(one is two for one, two in zip(held(), before, strict=True))
    assert plugin.active_session() is None


def test_the_hooks_of_a_gpu_are_in_this_vllm() -> None:
    """Applied and put back, on the CPU: what a GPU would have replaced, with its signatures."""
    from kernels_sm70.vllm_hooks.session import Session

    flags = {flag.variable: flag.variable != SHARDED for flag in FLAGS}
    hooks = tuple(
        importlib.import_module(f"kernels_sm70.vllm_hooks.{flag.hook}")
        for flag in FLAGS
        if flags[flag.variable]
    )
    session = Session(flags, hooks, "0.32.0", "sm_90", "0.1.0")
    layer = importlib.import_module(TARGETS[2][0]).QwenGatedDeltaNetAttention
    before = vars(layer)["forward_cuda"]
    session.patch_set.apply()
    try:
        assert vars(layer)["forward_cuda"] is not before
        session.patch_set.check_intact()
    finally:
        session.patch_set.undo()
    assert vars(layer)["forward_cuda"] is before


def test_a_flag_on_the_cpu_is_refused_without_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    before = held()
    monkeypatch.setenv(GDN, "1")
    with pytest.raises(PluginError, match=f"serves on the CPU.*{CPU_REFERENCE}=1"):
        plugin.register()
    assert all(one is two for one, two in zip(held(), before, strict=True))


def test_another_vllm_is_refused(monkeypatch: pytest.MonkeyPatch, register: Any) -> None:
    monkeypatch.setattr(vllm, "__version__", "0.33.1")
    with pytest.raises(PluginError, match=r"vLLM 0\.33\.1 .*written for 0\.32\.0"):
        register(GDN)


def test_a_plugin_that_came_later_is_refused_before_the_weights_load(
    monkeypatch: pytest.MonkeyPatch, register: Any
) -> None:
    register(HC)
    module, owner, attribute = TARGETS[0]
    hooked = getattr(importlib.import_module(module), owner)
    worker = importlib.import_module(TARGETS[4][0]).Worker
    loading = SimpleNamespace()  # the first thing vLLM's own method does with it would raise
    with monkeypatch.context() as later:
        later.setattr(hooked, attribute, lambda self: 0)
        with pytest.raises(PluginError, match=r"replaced again after this plugin.*Load one"):
            worker.load_model(loading, load_dummy_weights=False)


def test_a_missing_hook_is_refused_and_nothing_replaced(
    monkeypatch: pytest.MonkeyPatch, register: Any
) -> None:
    indexer = importlib.import_module("vllm.models.qwen4_exp.nvidia.ops.qsa_indexer")
    monkeypatch.delattr(indexer, "expand_qsa_block_indices")
    before = held()
    with pytest.raises(PluginError, match="qsa_indexer:expand_qsa_block_indices"):
        register(GDN, HC, EXPAND)
    assert all(one is two for one, two in zip(held(), before, strict=True))


def test_another_plugins_hook_is_refused(monkeypatch: pytest.MonkeyPatch, register: Any) -> None:
    layer = importlib.import_module(TARGETS[2][0]).QwenGatedDeltaNetAttention

    def forward_cpu(self: Any, hidden_states: Any) -> Any:
        return hidden_states

    monkeypatch.setattr(layer, "forward_cpu", forward_cpu)
    with pytest.raises(PluginError, match="another plugin serves the gdn_split route"):
        register(GDN)


def test_registering_twice_changes_nothing_and_other_flags_are_refused(
    monkeypatch: pytest.MonkeyPatch, register: Any
) -> None:
    register(GDN)
    once = held()
    plugin.register()
    assert all(one is two for one, two in zip(held(), once, strict=True))
    monkeypatch.setenv(HC, "1")
    with pytest.raises(PluginError, match="called again"):
        plugin.register()


@pytest.mark.parametrize("rows", [2, 3, 8, 17])
@pytest.mark.parametrize("name", ["layer", "last"])
def test_hyper_connection_route(residual: Any, register: Any, rows: int, name: str) -> None:
    module = residual[name]
    state, block, logits = inputs(rows)
    stock = module.combine_and_mix(state, block, logits), module.mix(state)
    register(HC)
    served = module.combine_and_mix(state, block, logits), module.mix(state)
    assert counts() == {"hyper_connection.hit": {str(rows): 2}}
    for found, want in zip(served, stock, strict=True):
        assert (found[2] is None) == (want[2] is None) == (name == "last")
        for one, two in zip(found, want, strict=True):
            if one is not None:
                error = (one.double() - two.double()).norm() / two.double().norm()
                assert one.shape == two.shape
                assert error < 2e-3
    assert served[1][0] is state  # without a block the state is passed through


@pytest.mark.parametrize(("rows", "reason"), [(1, "m1"), (18, "prefill"), (40, "prefill")])
def test_hyper_connection_fallback_keeps_every_bit(
    residual: Any, register: Any, rows: int, reason: str
) -> None:
    state, block, logits = inputs(rows)
    stock = residual["layer"].combine_and_mix(state, block, logits)
    register(HC)
    served = residual["layer"].combine_and_mix(state, block, logits)
    assert counts() == {f"hyper_connection.fallback.{reason}": {str(rows): 1}}
    assert all(torch.equal(one, two) for one, two in zip(served, stock, strict=True))


def test_both_hyper_connection_routes_at_once_are_refused(register: Any) -> None:
    before = held()
    both = r"hyper_connection and hyper_connection\.sharded both hook"
    with pytest.raises(PluginError, match=both):
        register(HC, SHARDED)
    assert all(one is two for one, two in zip(held(), before, strict=True))


def test_one_rank_has_nothing_to_shard(residual: Any, register: Any) -> None:
    register(SHARDED)
    session = plugin.active_session()
    assert session is not None
    model = torch.nn.ModuleList(residual.values())
    worker = SimpleNamespace(rank=0, model_runner=SimpleNamespace(get_model=lambda: model))
    with pytest.raises(PluginError, match="two tensor-parallel ranks or more, found 1"):
        session.after_load(worker)


def test_two_ranks_gather_the_pieces_side_by_side() -> None:
    """Two processes over gloo: the sharded boundary equals the replicated one in every bit."""
    import subprocess

    from vllm.utils.network_utils import get_open_port

    script, port = Path(__file__).parent / "sharded_ranks.py", str(get_open_port())
    environ = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        CPU_REFERENCE: "1",
        SHARDED: "1",
        "OMP_NUM_THREADS": "1",
        # Names the shared memory of vLLM's CPU communicator; its executor sets it for workers.
        "VLLM_DIST_IDENT": f"kernels-sm70-{port}",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), port],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=180)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], said
    assert all("equal at 2, 8 and 17 rows; fallback at 1 and 18" in text for text in said), said


def test_a_strided_block_goes_to_the_original(residual: Any, register: Any) -> None:
    state, block, logits = inputs(4)
    strided = torch.stack((block, block), dim=-1)[..., 0]
    register(HC)
    residual["layer"].combine_and_mix(state, strided, logits)
    assert counts() == {"hyper_connection.fallback.layout": {"4": 1}}


def test_an_operation_that_returns_zeros_changes_the_output(
    residual: Any, register: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin that quietly took the stock route would pass every comparison but this one."""
    from kernels_sm70.hyper_connection import op

    state, block, logits = inputs(4)
    register(HC)
    served = residual["layer"].combine_and_mix(state, block, logits)

    def zeros(residual: Any, block: Any, injection: Any, **_: Any) -> Any:
        return residual * 0, block * 0, injection * 0

    monkeypatch.setattr(op, "boundary", zeros)
    broken = residual["layer"].combine_and_mix(state, block, logits)
    assert all(bool(two.any()) for two in served)
    assert not any(bool(one.any()) for one in broken)


def gdn_layer(hidden: int = 64) -> SimpleNamespace:
    """What the route reads of a layer, with projections that only need a seed."""
    generator = torch.Generator().manual_seed(5)
    qkvz = torch.randn(4096, hidden, generator=generator).bfloat16()
    ba = torch.randn(24, hidden, generator=generator).bfloat16()
    return SimpleNamespace(
        in_proj_qkvz=lambda x: (x @ qkvz.T, None),
        in_proj_ba=lambda x: (x @ ba.T, None),
        key_dim=512,
        value_dim=1536,
        num_v_heads=12,
        head_v_dim=128,
        tp_size=1,
        disable_tp_for_ba_proj=False,
        gqa_interleaved_layout=False,
        enable_fused_gdn_spec_decode=False,
        prefix="model.layers.0.linear_attn",
        _output_projection=lambda core, z: (core, z),
    )


@pytest.fixture
def gdn_core(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands in for vLLM's attention core: keeps what it was given, writes b into the output."""
    seen: dict[str, Any] = {}

    def core(qkv: Any, b: Any, a: Any, out: Any, layer_name: Any) -> None:
        seen.update(qkv=qkv, b=b, a=a)
        out += b.unsqueeze(-1)

    monkeypatch.setattr(torch.ops.vllm, "cpu_gdn_attention_core", core, raising=False)
    return seen


@pytest.mark.parametrize("rows", [2, 5, 16, 100])
def test_gdn_route_moves_every_payload(register: Any, gdn_core: Any, rows: int) -> None:
    register(GDN)
    layer = gdn_layer()
    forward = vars(importlib.import_module(TARGETS[2][0]).QwenGatedDeltaNetAttention)["forward_cpu"]
    x = torch.randn(rows, 64, generator=torch.Generator().manual_seed(rows)).bfloat16()
    core, z = forward(layer, x)
    qkvz, ba = layer.in_proj_qkvz(x)[0], layer.in_proj_ba(x)[0]
    assert torch.equal(gdn_core["qkv"], qkvz[:, :2560])
    assert gdn_core["qkv"].stride() == (4096, 1)  # still a view of the projection
    assert torch.equal(gdn_core["b"], ba[:, :12]) and gdn_core["b"].is_contiguous()
    assert torch.equal(gdn_core["a"], ba[:, 12:]) and gdn_core["a"].is_contiguous()
    assert torch.equal(z.reshape(rows, -1), qkvz[:, 2560:]) and z.is_contiguous()
    assert torch.equal(core[..., 0], ba[:, :12])
    assert counts() == {"gdn_split.hit": {str(rows) if rows <= 64 else ">64": 1}}


@pytest.mark.parametrize(
    ("change", "rows", "dtype", "reason"),
    [
        ({}, 1, torch.bfloat16, "m"),
        ({}, 4, torch.float32, "dtype"),
        ({"gqa_interleaved_layout": True}, 4, torch.bfloat16, "layout"),
        ({"enable_fused_gdn_spec_decode": True}, 4, torch.bfloat16, "layout"),
        ({"disable_tp_for_ba_proj": True, "tp_size": 2}, 4, torch.bfloat16, "layout"),
        ({"key_dim": 510}, 4, torch.bfloat16, "shape"),
    ],
)
def test_gdn_fallbacks_are_counted(
    register: Any, change: dict[str, Any], rows: int, dtype: torch.dtype, reason: str
) -> None:
    from kernels_sm70.vllm_hooks import gdn_split

    layer = gdn_layer()
    vars(layer).update(change)
    forward = gdn_split._make_forward(lambda self, x: "stock", "cpu_gdn_attention_core")
    assert forward(layer, torch.zeros(rows, 64, dtype=dtype)) == "stock"
    assert counts() == {f"gdn_split.fallback.{reason}": {str(rows): 1}}


def moe_layer(experts: int = 8) -> Any:
    from kernels_sm70.moe_grouped.launch import Experts

    generator = torch.Generator().manual_seed(7)
    w13 = (torch.randn(experts, 320, 2560, generator=generator) / 50).bfloat16()
    w2 = (torch.randn(experts, 2560, 160, generator=generator) / 12).bfloat16()
    plain = Experts(w13, None, None, w2, None, None)
    return SimpleNamespace(**{moe_hook.ATTRIBUTE: plain}), w13.float(), w2.float()


@pytest.mark.parametrize("rows", [2, 7, 16])
def test_moe_route(rows: int) -> None:
    layer, w13, w2 = moe_layer()
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 2560, generator=generator).bfloat16()
    ids = torch.stack([torch.randperm(8, generator=generator)[:3] for _ in range(rows)])
    weights = torch.rand(rows, 3, generator=generator)
    forward = moe_hook._make_forward(lambda *_: pytest.fail("the original ran"))
    served = forward(layer, x, weights, ids)
    want = torch.zeros(rows, 2560)
    for row in range(rows):
        for slot in range(3):
            gate, up = (w13[ids[row, slot]] @ x[row].float()).split(160)
            hidden = torch.nn.functional.silu(gate) * up
            want[row] += weights[row, slot] * (w2[ids[row, slot]] @ hidden)
    assert (served.float() - want).norm() / want.norm() < 1e-2
    assert counts() == {"moe_grouped.hit": {str(rows): 1}}


def test_moe_fallbacks_are_counted() -> None:
    layer, *_ = moe_layer()
    forward = moe_hook._make_forward(lambda *_: "stock")
    ids, weights = torch.zeros(1, 3, dtype=torch.int32), torch.ones(1, 3)
    assert forward(layer, torch.zeros(1, 2560).bfloat16(), weights, ids) == "stock"
    assert (
        forward(
            layer,
            torch.zeros(4, 512).bfloat16(),
            weights.expand(4, 3).contiguous(),
            ids.expand(4, 3).contiguous(),
        )
        == "stock"
    )
    packed = SimpleNamespace()
    assert forward(packed, torch.zeros(4, 2560).bfloat16(), weights, ids) == "stock"
    assert counts() == {
        "moe_grouped.fallback.m": {"1": 1},
        "moe_grouped.fallback.contract": {"4": 1},
        "moe_grouped.fallback.layout": {"4": 1},
    }


def test_expansion_route_in_vllms_module(register: Any) -> None:
    register(EXPAND)
    indexer = importlib.import_module("vllm.models.qwen4_exp.nvidia.ops.qsa_indexer")
    positions = torch.tensor([4096, 9, 2, -1], dtype=torch.int32)
    visible = torch.tensor([1024, 2, 0, 0], dtype=torch.int32)
    blocks = torch.arange(4 * 512, dtype=torch.int32).view(4, 512)
    out = torch.full((4, 2052), 77, dtype=torch.int32)
    indexer.expand_qsa_block_indices(blocks, positions, visible, 4, 2048, out)
    assert out[0, :4].tolist() == [0, 1, 2, 3] and out[0, 2051] == 2049
    assert out[1, :11].tolist() == [2048, 2049, 2050, 2051, 2052, 2053, 2054, 2055, 8, 9, -1]
    assert out[2, :4].tolist() == [0, 1, 2, -1] and out[3, 0] == -1 and out[3, 2051] == 0
    assert counts() == {"qsa_expand.hit": {"4": 1}}


def test_scorer_route_in_vllms_module(register: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    register(SCORER)
    indexer = importlib.import_module("vllm.models.qwen4_exp.nvidia.ops.qsa_indexer")
    seen: list[Any] = []
    monkeypatch.setattr(indexer, "_topk", lambda logits, *rest: seen.append((logits, rest)))
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(2, 4, 128, generator=generator).bfloat16()
    keys = torch.randn(5, 16, 1, 128, generator=generator).bfloat16()
    table = torch.tensor([[3, 1], [0, 4]], dtype=torch.int32)
    visible = torch.tensor([20, 7], dtype=torch.int32)
    chosen = torch.empty(2, 512, dtype=torch.int32)
    indexer.qsa_select_paged_decode(q, keys, table, visible, 2048, 4, 1, chosen)
    logits = seen[0][0]
    for row in range(2):
        mine = keys[table[row].long()].reshape(32, 128)[: visible[row]].double()
        want = (q[row].double() @ mine.T).relu().sum(0)
        assert torch.allclose(logits[row, : visible[row]].double(), want, rtol=1e-5, atol=1e-4)
    assert seen[0][1][0] is visible and seen[0][1][3] is chosen
    assert counts() == {"qsa_scorer.hit": {"2": 1}}


def test_a_model_without_the_routes_modules_is_refused(register: Any) -> None:
    register(HC)
    session = plugin.active_session()
    assert session is not None
    model = torch.nn.Linear(2, 2)
    worker = SimpleNamespace(rank=0, model_runner=SimpleNamespace(get_model=lambda: model))
    with pytest.raises(PluginError, match="Linear has no module that the route serves"):
        session.after_load(worker)


def test_warm_up_is_not_counted(
    residual: Any, register: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file starts at zero after warm-up and follows what is served after it."""
    import json

    monkeypatch.setenv("EVALHARNESS_ROUTE_HITS_DIR", str(tmp_path / "hits"))
    register(HC)
    session = plugin.active_session()
    assert session is not None
    model = torch.nn.ModuleList(residual.values())
    worker = SimpleNamespace(rank=3, model_runner=SimpleNamespace(get_model=lambda: model))
    session.after_load(worker)
    assert counts()["hyper_connection.hit"]  # preparing ran the operation
    session.after_warmup(worker)
    assert session.writer is not None
    before = json.loads(session.writer.path.read_text())
    assert (before["routes"], before["fallbacks"], before["rank"]) == ([], [], 3)
    assert before["flags"][HC] is True and before["flags"][GDN] is False
    assert before["flag_routes"] == {HC: "hyper_connection"}
    assert len(before["kernels"]["hyper_connection.cpu_reference"]) == 64
    residual["layer"].mix(inputs(4)[0])
    session.writer.flush()
    after = json.loads(session.writer.path.read_text())
    assert after["routes"] == [{"route": "hyper_connection", "m": 4, "hits": 1}]
