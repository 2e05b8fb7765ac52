"""A toy layer's decode step at 16 rows: GEMMs, attention, our kernels, sampling. For traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

ROWS = 16
HIDDEN, HEADS, HEAD_DIM, CONTEXT, VOCABULARY = 2560, 8, 128, 256, 8192
# In the words of vLLM's workers: no request in prefill, 16 in decode with a token each.
ANNOTATION = f"execute_context_0(0)_generation_{ROWS}({ROWS})"
Runner = Callable[[int], object]


class Decode:
    """One decode step of a toy layer at 16 rows: fp16 on the given device, seeded."""

    def __init__(self, place: Any, ours: Sequence[Runner]) -> None:
        import torch

        generator = torch.Generator(device=place).manual_seed(7)

        def random(*shape: int) -> Any:
            made = torch.randn(*shape, generator=generator, device=place, dtype=torch.float32)
            return (made * shape[-1] ** -0.5).half()

        self.ours = ours
        self.x, self.norm = random(ROWS, HIDDEN), random(HIDDEN)
        self.q_weight = random(HEADS * HEAD_DIM, HIDDEN)
        self.keys = random(ROWS, HEADS, CONTEXT, HEAD_DIM)
        self.values = random(ROWS, HEADS, CONTEXT, HEAD_DIM)
        self.out_weight = random(HIDDEN, HEADS * HEAD_DIM)
        self.head = random(VOCABULARY, HIDDEN)
        self.logits = torch.zeros(ROWS, VOCABULARY, device=place, dtype=torch.float16)
        self.tokens = torch.zeros(ROWS, 1, dtype=torch.int64, pin_memory=place.type == "cuda")

    def compute(self) -> None:
        """The part that a CUDA graph can hold."""
        from torch.nn import functional as F

        normed = F.rms_norm(self.x, (HIDDEN,), self.norm)
        for run in self.ours:
            run(0)
        q = F.linear(normed, self.q_weight).view(ROWS, HEADS, 1, HEAD_DIM)
        attended = F.scaled_dot_product_attention(q, self.keys, self.values)
        hidden = self.x + F.linear(attended.reshape(ROWS, -1), self.out_weight)
        self.logits.copy_(F.linear(F.silu(hidden), self.head))

    def sample(self) -> None:
        """Top-40 sampling, and the tokens to the host."""
        import torch

        kept = torch.softmax(self.logits.float(), -1).topk(40)
        choice = torch.multinomial(kept.values, 1)
        self.tokens.copy_(kept.indices.gather(1, choice), non_blocking=True)

    def step(self) -> None:
        """One eager step."""
        self.compute()
        self.sample()
