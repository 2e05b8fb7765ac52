"""Copy a model with one fault planted in its weights, to see whether a gate finds it.

    python -m tools.demo_model.plant_fault --model .demo/model --out .demo/head --head 1.05
    python -m tools.demo_model.plant_fault --model .demo/model --out .demo/layer --layer 15:1.01

A scaled head sharpens every distribution and leaves the argmax alone, so no greedy answer
changes; a layer that is a percent off changes almost none. Both are model faults: they sit where
a wrong kernel would put them, not in a logits processor.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from tools.demo_model.make_model import WEIGHTS


def plant(model: Path, out: Path, *, head: float | None, layer: tuple[int, float] | None) -> int:
    """Write a copy of `model` with scaled weights to `out`; return how many tensors changed.

    head: factor on the output head, untied from the embedding if it was tied to it.
    layer: (number, factor) on every matrix of that layer. Scaled weights are kept in float32:
    rounding them to bfloat16 would plant a second fault, of random sign.
    """
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, out, ignore=shutil.ignore_patterns(WEIGHTS, "MODEL.json"))
    state = load_file(str(model / WEIGHTS))
    changed = 0
    if head is not None:
        config = json.loads((out / "config.json").read_text(encoding="utf-8"))
        source = state.get("lm_head.weight", state["model.embed_tokens.weight"])
        state["lm_head.weight"] = source.float() * head
        config["tie_word_embeddings"] = False
        (out / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        changed += 1
    if layer is not None:
        number, factor = layer
        prefix = f"model.layers.{number}."
        names = [n for n in state if n.startswith(prefix) and state[n].dim() == 2]
        for name in names:
            state[name] = state[name].float() * factor
        changed += len(names)
    save_file(state, str(out / WEIGHTS), metadata={"format": "pt"})
    return changed


def main() -> int:
    """Parse the command line and write the copy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--head", type=float, help="factor on the output head")
    parser.add_argument("--layer", help="NUMBER:FACTOR on one layer's matrices")
    args = parser.parse_args()
    number, _, factor = (args.layer or "").partition(":")
    layer = (int(number), float(factor)) if args.layer else None
    changed = plant(args.model, args.out, head=args.head, layer=layer)
    print(f"{args.out}: {changed} tensors changed")
    return 0 if changed else 1


if __name__ == "__main__":
    raise SystemExit(main())
