"""The tensors of a Qwen4Exp text model: names, shapes and how each is drawn.

Names and shapes are those of transformers' `Qwen4ExpForCausalLM`; the vLLM loader takes the
same names. Every scale is chosen so that a random model behaves like a trained one where it
matters here: each block adds O(1) to the residual streams and the logits have a standard
deviation near 2, so a numeric fault reaches the log-probabilities instead of vanishing in
nearly uniform logits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Draw = Literal["normal", "around_one", "a_log", "dt_bias"]
Config = dict[str, Any]

LOGIT_STD = 2.0
MEAN_GATE = 0.5  # the gated mean over the streams halves a normalised state


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor: `std` is the standard deviation of a normal draw in float32."""

    name: str
    shape: tuple[int, ...]
    draw: Draw = "normal"
    std: float = 0.02
    float32: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes in storage."""
        return math.prod(self.shape) * (4 if self.float32 else 2)


def fan_in(name: str, *shape: int, gain: float = 1.0) -> TensorSpec:
    """Return a projection [.., out, in] whose output keeps its input's scale times `gain`."""
    return TensorSpec(name, shape, std=gain * shape[-1] ** -0.5)


def model_tensors(config: Config) -> Iterator[tuple[str, list[TensorSpec]]]:
    """Yield (file stem, tensors): the embedding and head first, then one group a layer."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    head_std = LOGIT_STD / (MEAN_GATE * hidden**0.5)
    outer = [
        TensorSpec("model.embed_tokens.weight", (vocab, hidden), std=1.0),
        TensorSpec("lm_head.weight", (vocab, hidden), std=head_std),
        *_hyper_connection("model.hyper_connection_mixer", config, inject=False),
    ]
    yield "outer", outer
    for index, kind in enumerate(config["layer_types"]):
        yield f"layer{index}", _layer(f"model.layers.{index}", kind, config)


def _layer(prefix: str, kind: str, config: Config) -> list[TensorSpec]:
    mixer = _linear_attention if kind == "linear_attention" else _attention
    return [
        *mixer(prefix, config),
        *_moe(f"{prefix}.mlp", config),
        *_hyper_connection(f"{prefix}.attn_hyper_connection", config, inject=True),
        *_hyper_connection(f"{prefix}.mlp_hyper_connection", config, inject=True),
    ]


def _hyper_connection(prefix: str, config: Config, *, inject: bool) -> list[TensorSpec]:
    rank, streams = config["hc_lowrank"], config["hc_count"]
    wide = streams * config["hidden_size"]
    specs = [
        TensorSpec(f"{prefix}.hc_norm.weight", (wide,), std=0.1),
        # The low-rank input is divided by the stream count before SiLU: the gain restores it.
        fan_in(f"{prefix}.input_mix_weight_down.weight", rank, wide, gain=float(streams)),
        fan_in(f"{prefix}.input_mix_weight_up.weight", wide, rank, gain=2.0),
    ]
    if inject:
        inject_name = f"{prefix}.block_inject_weight.weight"
        specs.append(fan_in(inject_name, streams, wide, gain=float(streams)))
    return specs


def _linear_attention(prefix: str, config: Config) -> list[TensorSpec]:
    name, hidden = f"{prefix}.linear_attn", config["hidden_size"]
    value_heads = config["linear_num_value_heads"]
    key_dim = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    value_dim = value_heads * config["linear_value_head_dim"]
    conv_dim = 2 * key_dim + value_dim
    return [
        TensorSpec(f"{name}.dt_bias", (value_heads,), draw="dt_bias"),
        TensorSpec(f"{name}.A_log", (value_heads,), draw="a_log", float32=True),
        fan_in(f"{name}.conv1d.weight", conv_dim, 1, config["linear_conv_kernel_dim"]),
        TensorSpec(
            f"{name}.norm.weight", (config["linear_value_head_dim"],), "around_one", 0.1, True
        ),
        fan_in(f"{name}.out_proj.weight", hidden, value_dim),
        fan_in(f"{name}.in_proj_qkv.weight", conv_dim, hidden),
        fan_in(f"{name}.in_proj_z.weight", value_dim, hidden),
        fan_in(f"{name}.in_proj_b.weight", value_heads, hidden),
        fan_in(f"{name}.in_proj_a.weight", value_heads, hidden),
    ]


def _attention(prefix: str, config: Config) -> list[TensorSpec]:
    name, hidden, head = f"{prefix}.self_attn", config["hidden_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    specs = [
        fan_in(f"{name}.q_proj.weight", 2 * heads * head, hidden),  # queries and output gates
        fan_in(f"{name}.k_proj.weight", kv_heads * head, hidden),
        fan_in(f"{name}.v_proj.weight", kv_heads * head, hidden),
        fan_in(f"{name}.o_proj.weight", hidden, heads * head),
        TensorSpec(f"{name}.q_norm.weight", (head,), std=0.1),
        TensorSpec(f"{name}.k_norm.weight", (head,), std=0.1),
    ]
    if config.get("indexer_n_heads") is not None:
        index = config["indexer_head_dim"]
        rows = (config["indexer_n_heads"] + config["indexer_kv_heads"]) * index
        specs += [
            fan_in(f"{name}.indexer.index_qk_proj.weight", rows, hidden),
            TensorSpec(f"{name}.indexer.q_layernorm.weight", (index,), std=0.1),
            TensorSpec(f"{name}.indexer.k_layernorm.weight", (index,), std=0.1),
        ]
    return specs


def _moe(name: str, config: Config) -> list[TensorSpec]:
    hidden, experts = config["hidden_size"], config["num_experts"]
    routed, shared = config["moe_intermediate_size"], config["shared_expert_intermediate_size"]
    return [
        fan_in(f"{name}.gate.weight", experts, hidden, gain=2.0),
        fan_in(f"{name}.experts.gate_up_proj", experts, 2 * routed, hidden),
        fan_in(f"{name}.experts.down_proj", experts, hidden, routed, gain=2.0),
        fan_in(f"{name}.shared_expert.gate_proj.weight", shared, hidden),
        fan_in(f"{name}.shared_expert.up_proj.weight", shared, hidden),
        fan_in(f"{name}.shared_expert.down_proj.weight", hidden, shared, gain=2.0),
        fan_in(f"{name}.shared_expert_gate.weight", 1, hidden),
    ]
