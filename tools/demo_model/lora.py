"""Merges a low-rank adapter (PEFT's file layout) into a state dict: W += alpha / r * B @ A."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.demo_model.digests import ModelError, require_digest

if TYPE_CHECKING:
    import torch

PREFIX = "base_model.model."
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
RECORD = "ADAPTER.json"


def read_adapter_record(adapter: Path, *, base_tensors_sha256: str) -> dict[str, Any]:
    """Return the adapter's ADAPTER.json after checking its files and its base.

    ADAPTER.json: {"base_tensors_sha256": hex, "files": {file name: sha256}}.
    Raises ModelError where it, a file, or the base is missing or not the one it names.
    """
    path = adapter / RECORD
    if not path.is_file():
        raise ModelError(f"{path}: missing; an adapter is merged only with its digests beside it")
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if record["base_tensors_sha256"] != base_tensors_sha256:
        raise ModelError(
            f"{path}: trained on base tensors {record['base_tensors_sha256']}, "
            f"this base is {base_tensors_sha256}; train it again or restore the base"
        )
    missing = {WEIGHTS, CONFIG} - set(record["files"])
    if missing:
        raise ModelError(f"{path}: names no digest for {sorted(missing)}; write it again")
    for name, digest in sorted(record["files"].items()):
        require_digest(adapter / name, digest, remedy="restore the committed adapter")
    return record


def merge_adapter(state: dict[str, torch.Tensor], adapter: Path) -> int:
    """Add the adapter's product to `state` in place; return how many weights changed.

    Sums in float32 and rounds once to each weight's own dtype. Raises ModelError on a tensor
    it does not know, so that no part of an adapter is ever left out quietly.
    """
    from safetensors.torch import load_file

    config = json.loads((adapter / CONFIG).read_text(encoding="utf-8"))
    scale = float(config["lora_alpha"]) / float(config["r"])
    if config.get("use_rslora") or config.get("use_dora") or config.get("bias", "none") != "none":
        raise ModelError(f"{adapter / CONFIG}: expected plain LoRA without bias; found {config}")
    tensors = load_file(str(adapter / WEIGHTS))
    targets = {name.removesuffix(".lora_A.weight") for name in tensors if ".lora_A." in name}
    known = {f"{name}.lora_{side}.weight" for name in targets for side in "AB"}
    if set(tensors) != known:
        raise ModelError(f"{adapter / WEIGHTS}: unexpected tensors {sorted(set(tensors) ^ known)}")
    for target in sorted(targets):
        name = target.removeprefix(PREFIX) + ".weight"
        if name not in state:
            raise ModelError(f"{adapter / WEIGHTS}: the base has no weight {name}")
        product = (
            tensors[f"{target}.lora_B.weight"].float() @ tensors[f"{target}.lora_A.weight"].float()
        )
        weight = state[name]
        if product.shape != weight.shape:
            raise ModelError(f"{name}: adapter gives {product.shape}, base has {weight.shape}")
        state[name] = (weight.float() + scale * product).to(weight.dtype)
    return len(targets)
