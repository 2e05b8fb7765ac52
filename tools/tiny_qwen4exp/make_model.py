#!/usr/bin/env python3
"""Write a small Qwen4Exp model directory: seeded random weights, a real tokenizer.

  python tools/tiny_qwen4exp/make_model.py --size small --out /tmp/tiny
  python tools/tiny_qwen4exp/make_model.py --size rank --out /tmp/rank          # for a GPU
  python tools/tiny_qwen4exp/make_model.py --fault 1.01 --like /tmp/tiny --out /tmp/faulty

Sizes:
  small  hidden 2560, one layer of each kind, 16 experts: every route can be reached, 190 MB.
  cpu    small without the QSA indexer: the attention that vLLM's CPU build can serve.
  pair   rank for two GPUs: heads and intermediates doubled, so that each half has rank's shapes.
  rank   one tensor-parallel rank's operators of Qwen3.8-Flash-Next at TP4 as a model of its
         own (hidden 2560, qkvz 4096, ba 24, 512 experts x 160, 10 a token), 2 layers, 2.7 GB.

Each tensor is drawn from a generator seeded by (seed, tensor name), on the CPU: the same
bytes on every machine and in any order, and `--fault` changes one tensor and nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from shapes import Config, TensorSpec, model_tensors  # noqa: E402

FAULT_TENSOR = "model.layers.0.linear_attn.out_proj.weight"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

BASE: Config = {
    "architectures": ["Qwen4ExpForCausalLM"],
    "model_type": "qwen4_exp_text",
    "dtype": "bfloat16",
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
    },
    "attention_bias": False,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "hc_count": 4,
    "ple_layer_ids": [],
    "norm_topk_prob": True,
    "output_gate_type": "sigmoid",
    "num_hidden_layers": 2,
    # transformers before 5.18 knows the second kind by this name only; later ones rename it.
    "layer_types": ["linear_attention", "full_attention"],
}
INDEXER: Config = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 128,
    "indexer_budget": 2048,
    "indexer_compress_ratio": 4,
}
SMALL: Config = {
    "hidden_size": 2560,  # the grouped MoE is written for this width and intermediates of 160
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 12,
    "moe_intermediate_size": 160,
    "shared_expert_intermediate_size": 160,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "hc_lowrank": 64,
}
RANK: Config = {
    "hidden_size": 2560,
    "num_attention_heads": 6,
    "num_key_value_heads": 1,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 12,
    "moe_intermediate_size": 160,
    "shared_expert_intermediate_size": 160,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "hc_lowrank": 320,
}
PAIR: Config = RANK | {
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 24,
    "moe_intermediate_size": 320,
    "shared_expert_intermediate_size": 320,
}
SIZES: dict[str, Config] = {
    "small": SMALL | INDEXER,
    "cpu": SMALL,
    "rank": RANK | INDEXER,
    "pair": PAIR | INDEXER,
}


def draw(spec: TensorSpec, *, seed: int, scale: float = 1.0) -> torch.Tensor:
    """Return the tensor of `spec`, times `scale`, rounded once to its storage type."""
    digest = hashlib.sha256(f"{seed}/{spec.name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    if spec.draw == "normal":
        value = torch.empty(spec.shape).normal_(0.0, spec.std, generator=generator)
    elif spec.draw == "around_one":
        value = torch.empty(spec.shape).normal_(1.0, spec.std, generator=generator)
    elif spec.draw == "a_log":
        value = torch.empty(spec.shape).uniform_(1.0, 16.0, generator=generator).log_()
    else:
        step = torch.empty(spec.shape).uniform_(math.log(1e-3), math.log(0.1), generator=generator)
        value = torch.log(torch.expm1(step.exp()))  # softplus of it gives the step back
    value *= scale
    return value if spec.float32 else value.to(torch.bfloat16)


def write_weights(
    out: Path, config: Config, *, seed: int, faults: dict[str, float], like: Path | None
) -> int:
    """Write one safetensors file a group with an index; return the bytes of all tensors.

    `like`: a directory of the same size and seed without faults; its files are linked where no
    fault falls into them.
    """
    weight_map: dict[str, str] = {}
    total_bytes = 0
    unknown = set(faults)
    for stem, specs in model_tensors(config):
        scales = {spec.name: faults.get(spec.name, 1.0) for spec in specs}
        unknown -= set(scales)
        filename = f"model-{stem}.safetensors"
        (out / filename).unlink(missing_ok=True)  # it may be a link to another model's file
        if like is not None and not set(scales) & set(faults):
            os.link(like / filename, out / filename)
        else:
            with ThreadPoolExecutor() as pool:
                jobs = [pool.submit(draw, s, seed=seed, scale=scales[s.name]) for s in specs]
                tensors = {s.name: job.result() for s, job in zip(specs, jobs, strict=True)}
            save_file(tensors, out / filename, metadata={"format": "pt"})
        weight_map |= {spec.name: filename for spec in specs}
        total_bytes += sum(spec.size_bytes for spec in specs)
    if unknown:
        raise SystemExit(f"--fault-tensor: no tensor named {', '.join(sorted(unknown))}")
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    _write_json(out / "model.safetensors.index.json", index)
    return total_bytes


def write_tokenizer(out: Path) -> tuple[int, dict[str, int]]:
    """Copy the committed tokenizer; return its size and the ids of its special tokens."""
    for name in TOKENIZER_FILES:
        shutil.copy(HERE / name, out / name)
    tokenizer = json.loads((HERE / "tokenizer.json").read_text(encoding="utf-8"))
    special = {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    size = max(*tokenizer["model"]["vocab"].values(), *special.values()) + 1
    return size, special


def build(
    out: Path, *, size: str, seed: int, faults: dict[str, float], like: Path | None = None
) -> dict[str, Any]:
    """Write the whole directory and return what was written."""
    out.mkdir(parents=True, exist_ok=True)
    if like is not None:
        _check_like(like, {"size": size, "seed": seed, "faults": {}})
    vocab, special = write_tokenizer(out)
    config = (
        BASE
        | SIZES[size]
        | {
            "vocab_size": -(-vocab // 64) * 64,
            "eos_token_id": special["<|im_end|>"],
            "pad_token_id": special["<|endoftext|>"],
            "bos_token_id": None,
        }
    )
    _write_json(out / "config.json", config)
    generation = {"eos_token_id": config["eos_token_id"], "pad_token_id": config["pad_token_id"]}
    _write_json(out / "generation_config.json", generation)
    total_bytes = write_weights(out, config, seed=seed, faults=faults, like=like)
    facts = {"size": size, "seed": seed, "faults": faults, "bytes": total_bytes}
    _write_json(out / "made_by.json", facts)
    return facts


def _check_like(like: Path, wanted: dict[str, Any]) -> None:
    found = json.loads((like / "made_by.json").read_text(encoding="utf-8"))
    if any(found.get(key) != value for key, value in wanted.items()):
        raise SystemExit(f"--like {like}: made with {found}, expected {wanted}")


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=sorted(SIZES), default="small")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--fault",
        type=float,
        default=1.0,
        metavar="SCALE",
        help="multiply one tensor by this: a planted fault, e.g. 1.01",
    )
    parser.add_argument("--fault-tensor", default=FAULT_TENSOR)
    parser.add_argument(
        "--like", type=Path, metavar="DIR", help="same size and seed: link its unchanged files"
    )
    args = parser.parse_args(argv)
    faults = {} if args.fault == 1.0 else {args.fault_tensor: args.fault}
    facts = build(args.out, size=args.size, seed=args.seed, faults=faults, like=args.like)
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
