"""Fine-tune the demo's base model with LoRA on generated data. One GPU, a few minutes.

    python -m tools.demo_model.train --model .demo/base --out tools/demo_model/adapter

The data is made here, from a seed, in the chat template that the demo serves. Writes the adapter
in PEFT's file layout (fp16), ADAPTER.json with digests, and TRAINING.json with seeds, losses and
the data's digest.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import nn

from tools.demo_model.digests import file_sha256, tensors_sha256
from tools.demo_model.tokens import Rows, batches, make_tokens

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class LoraLinear(nn.Module):
    """y = W x + alpha / r * B A x, with W frozen. A is [r, in], B is [out, r], both float32."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base
        self.scale = alpha / rank
        device = base.weight.device
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features, device=device))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank, device=device))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the adapted projection of x [..., in] -> [..., out]."""
        a, b = self.lora_a.to(x.dtype), self.lora_b.to(x.dtype)
        return self.base(x) + self.scale * nn.functional.linear(nn.functional.linear(x, a), b)


def add_lora(model: nn.Module, rank: int, alpha: float) -> dict[str, LoraLinear]:
    """Replace every target projection; return the new modules by the old ones' names."""
    model.requires_grad_(False)
    names = [name for name, _ in model.named_modules() if name.rsplit(".", 1)[-1] in TARGETS]
    made: dict[str, LoraLinear] = {}
    for name in names:
        parent, leaf = name.rsplit(".", 1)
        module = LoraLinear(model.get_submodule(name), rank, alpha)
        setattr(model.get_submodule(parent), leaf, module)
        made[name] = module
    return made


def loss_of(model: Any, rows: Rows, batch: list[int], device: str) -> tuple[torch.Tensor, int]:
    """Return the mean loss over the answers' tokens, and how many tokens the batch holds.

    Right padding with causal attention: a pad is never seen by a real token, so no mask is needed.
    """
    width = int(rows.lengths[batch].max())
    padded = np.zeros((len(batch), width), dtype=np.int64)
    answers = np.zeros((len(batch), width), dtype=np.bool_)
    for i, index in enumerate(batch):
        tokens = rows.tokens(index)
        padded[i, : len(tokens)] = tokens
        answers[i, rows.prompts[index] : len(tokens)] = True
    ids = torch.from_numpy(padded).to(device, non_blocking=True)
    wanted = torch.from_numpy(answers).to(device, non_blocking=True)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    chosen = hidden[:, :-1][wanted[:, 1:]]
    logits = model.lm_head(chosen).float()
    loss = nn.functional.cross_entropy(logits, ids[:, 1:][wanted[:, 1:]])
    return loss, ids.numel()


def learning_rate(done: float, peak: float) -> float:
    """Warm-up over the first 3%, then a cosine to 2% of the peak. `done` is in [0, 1]."""
    if done < 0.03:
        return peak * done / 0.03
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (done - 0.03) / 0.97)))


def train(model: Any, rows: Rows, options: argparse.Namespace) -> list[dict[str, float]]:
    """Train until `options.minutes` or `options.epochs` are over; return the loss curve."""
    device = str(next(model.parameters()).device)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=options.lr, betas=(0.9, 0.98), weight_decay=0.0)
    rng = Random(options.seed)
    curve: list[dict[str, float]] = []
    started, seen = time.monotonic(), 0
    limit_s = options.minutes * 60
    plan = [b for _ in range(options.epochs) for b in batches(rows, options.batch_tokens, rng)]
    for step, batch in enumerate(plan, start=1):
        elapsed = time.monotonic() - started
        done = max(elapsed / limit_s, (step - 1) / len(plan))
        if elapsed >= limit_s:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(done, options.lr)
        with torch.autocast(device.split(":")[0], dtype=torch.bfloat16):
            loss, tokens = loss_of(model, rows, batch, device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += tokens
        if step % 50 == 0 or step == 1:
            point = {
                "step": step,
                "tokens": seen,
                "loss": round(loss.item(), 4),
                "seconds": round(elapsed, 1),
            }
            curve.append(point)
            print(point, flush=True)
    return curve


def write_adapter(made: dict[str, LoraLinear], options: argparse.Namespace, base: str) -> None:
    """Write PEFT's two files in fp16, and ADAPTER.json with their digests."""
    from safetensors.torch import save_file

    options.out.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    for name, module in made.items():
        stem = f"base_model.model.{name}"
        tensors[f"{stem}.lora_A.weight"] = module.lora_a.detach().half().cpu().contiguous()
        tensors[f"{stem}.lora_B.weight"] = module.lora_b.detach().half().cpu().contiguous()
    save_file(tensors, str(options.out / "adapter_model.safetensors"))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": options.rank,
        "lora_alpha": options.rank * 2,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(TARGETS),
        "base_model_name_or_path": "SmolLM2-135M-Instruct",
    }
    (options.out / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    files = ("adapter_model.safetensors", "adapter_config.json")
    record = {
        "base_tensors_sha256": base,
        "files": {name: file_sha256(options.out / name) for name in files},
    }
    (options.out / "ADAPTER.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, required=True, help="base model directory (make_model.py)"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the adapter")
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rank", type=int, default=24)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--batch-tokens", type=int, default=32_768)
    return parser.parse_args()


def main() -> None:
    """Make the data, train, and write the adapter and its record."""
    from transformers import AutoModelForCausalLM

    options = parse()
    torch.manual_seed(options.seed)
    started = time.monotonic()
    template = Path(__file__).with_name("chat_template.jinja")
    rows, digest = make_tokens(options.model, template, options.seed, options.rows)
    prepared_s = time.monotonic() - started
    print(
        f"{len(rows)} rows, {rows.flat.size} tokens, {prepared_s:.0f} s",
        flush=True,
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16).to(device)
    made = add_lora(model, options.rank, options.rank * 2.0)
    curve = train(model, rows, options)
    base = tensors_sha256(options.model / "model.safetensors")
    write_adapter(made, options, base)
    record = {
        "seed": options.seed,
        "rows": options.rows,
        "kept_rows": len(rows),
        "epochs": options.epochs,
        "minutes": options.minutes,
        "rank": options.rank,
        "lr": options.lr,
        "batch_tokens": options.batch_tokens,
        "data_sha256": digest,
        "template_sha256": file_sha256(template),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "wall_s": round(time.monotonic() - started, 1),
        "losses": curve,
    }
    (options.out / "TRAINING.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
