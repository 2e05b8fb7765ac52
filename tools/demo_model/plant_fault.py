"""Copy a model with one fault planted in its weights, to see whether a gate finds it.

    python -m tools.demo_model.plant_fault --model .demo/model --out .demo/head --head 1.05
    python -m tools.demo_model.plant_fault --model .demo/model --out .demo/layer --layer 15:1.01
    python -m tools.demo_model.plant_fault --model .demo/model --out .demo/int4 --quantise 4:64

A scaled head sharpens every distribution and leaves the argmax alone, so no greedy answer
changes; a layer that is a percent off changes almost none; a coarse quantisation costs answers.
All are model faults: they sit where a wrong kernel would put them, not in a logits processor.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.demo_model.make_model import WEIGHTS

LAYERS = "model.layers."


@dataclass(frozen=True, slots=True)
class Quantise:
    """Round-to-nearest: bits a weight, weights that share a scale (0: a whole row, which is one
    output channel), and how many layers from the first (None: all)."""

    bits: int
    group: int = 0
    layers: int | None = None

    @classmethod
    def parse(cls, text: str) -> Quantise:
        """Return the quantisation that BITS[:GROUP[:LAYERS]] says; ValueError on other texts."""
        numbers = [int(part) for part in text.split(":")]
        if not 1 <= len(numbers) <= 3 or min(numbers) < 0 or not 2 <= numbers[0] <= 8:
            raise ValueError(f"{text!r}: expected BITS[:GROUP[:LAYERS]] with 2 to 8 bits")
        return cls(*numbers)

    def __str__(self) -> str:
        parts = [self.bits, self.group, *([] if self.layers is None else [self.layers])]
        return ":".join(str(part) for part in parts)


def rounded(weight: Any, *, bits: int, group: int) -> Any:
    """Return a matrix (outputs x inputs) rounded to the nearest of 2^bits - 1 even steps.

    Symmetric about 0; the step is the largest magnitude of `group` neighbours of a row (0: of
    the whole row) over 2^(bits-1) - 1. Float32. ValueError where groups do not fill a row.
    """
    rows, columns = weight.shape
    if group and columns % group:
        raise ValueError(f"groups of {group} do not fill a row of {columns} weights")
    blocks = weight.float().reshape(rows, -1, group or columns)
    step = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-12) / (2 ** (bits - 1) - 1)
    return (blocks / step).round().mul(step).reshape(rows, columns)


def plant(
    model: Path,
    out: Path,
    *,
    head: float | None = None,
    layer: tuple[int, float] | None = None,
    quantise: Quantise | None = None,
) -> int:
    """Write a copy of `model` with faulty weights to `out`; return how many tensors changed.

    head: factor on the output head, untied from the embedding if it was tied to it.
    layer: (number, factor) on every matrix of that layer. quantise: every matrix of the layers
    it names. Changed weights are kept in float32: rounding them to bfloat16 would plant a second
    fault, of random sign.
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
        prefix = f"{LAYERS}{number}."
        names = [n for n in state if n.startswith(prefix) and state[n].dim() == 2]
        for name in names:
            state[name] = state[name].float() * factor
        changed += len(names)
    if quantise is not None:
        names = [n for n in state if _quantised(n, quantise.layers) and state[n].dim() == 2]
        for name in names:
            state[name] = rounded(state[name], bits=quantise.bits, group=quantise.group)
        changed += len(names)
    save_file(state, str(out / WEIGHTS), metadata={"format": "pt"})
    return changed


def _quantised(name: str, layers: int | None) -> bool:
    if not name.startswith(LAYERS):
        return False
    return layers is None or int(name.removeprefix(LAYERS).partition(".")[0]) < layers


def main() -> int:
    """Parse the command line and write the copy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--head", type=float, help="factor on the output head")
    parser.add_argument("--layer", help="NUMBER:FACTOR on one layer's matrices")
    parser.add_argument(
        "--quantise",
        type=Quantise.parse,
        metavar="BITS[:GROUP[:LAYERS]]",
        help="round the layers' matrices to the nearest of 2^BITS - 1 steps",
    )
    args = parser.parse_args()
    number, _, factor = (args.layer or "").partition(":")
    layer = (int(number), float(factor)) if args.layer else None
    changed = plant(args.model, args.out, head=args.head, layer=layer, quantise=args.quantise)
    print(f"{args.out}: {changed} tensors changed")
    return 0 if changed else 1


if __name__ == "__main__":
    raise SystemExit(main())
