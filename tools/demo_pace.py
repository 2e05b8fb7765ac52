"""How fast this machine decodes: the work of one float32 step of the demo's model, timed.

`make demo` has 20 minutes. On two cores without AVX-512 at a third of the usual clock one launch
takes four times as long as elsewhere, so the demo looks first and takes a smaller manifest there.
The pace chooses how many cases are asked and nothing else; the manifest is named in the plan.
"""

from __future__ import annotations

import time

import torch

# SmolLM2-135M: layers, hidden, key and value heads' width, intermediate size, vocabulary.
LAYERS, HIDDEN, KV, INNER, VOCABULARY = 30, 576, 192, 1536, 49_152
REPEATS = 5
# Up to so long a step, five launches of a manifest end in time; else the small one is asked. At 48
# ms the full one took 25 minutes, of which the cells were 19 (docs/demo-budget.md).
MOST_STEP_S = {"full": 0.03, "medium": 0.06}


def step_seconds() -> float:
    """Return the seconds of one step on the machine's cores: the median of five, after one."""
    layer = [
        torch.ones(HIDDEN + 2 * KV, HIDDEN),
        torch.ones(HIDDEN, HIDDEN),
        torch.ones(2 * INNER, HIDDEN),
        torch.ones(HIDDEN, INNER),
    ]
    layers = [[weight.clone() for weight in layer] for _ in range(LAYERS)]
    head = torch.ones(VOCABULARY, HIDDEN)
    with torch.inference_mode():
        taken = sorted(_timed(layers, head) for _ in range(REPEATS + 1))
    return taken[len(taken) // 2]


def _timed(layers: list[list[torch.Tensor]], head: torch.Tensor) -> float:
    started = time.perf_counter()
    state = torch.full((1, HIDDEN), 1e-3)
    for qkv, out, up, down in layers:
        normed = _norm(state)
        mixed = torch.nn.functional.linear(normed, qkv)[:, :HIDDEN].softmax(-1)
        state = state + torch.nn.functional.linear(mixed, out)
        gate, value = torch.nn.functional.linear(_norm(state), up).chunk(2, dim=-1)
        state = state + torch.nn.functional.linear(torch.nn.functional.silu(gate) * value, down)
    torch.nn.functional.linear(_norm(state), head).argmax()
    return time.perf_counter() - started


def _norm(state: torch.Tensor) -> torch.Tensor:
    return state * torch.rsqrt(state.pow(2).mean(-1, keepdim=True) + 1e-5)
