# SPDX-License-Identifier: Apache-2.0
"""Scores, top k and expansion by the oracles, against the indexer of transformers'
modeling_qwen4_exp."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels_sm70.qsa_expand import reference as expand_reference
from kernels_sm70.qsa_scorer import reference


@pytest.mark.parametrize("length", [8, 9, 10, 11, 2200])
def test_scores_topk_and_expansion_select_what_transformers_selects(length: int) -> None:
    modeling = pytest.importorskip(
        "transformers.models.qwen4_exp.modeling_qwen4_exp", reason="transformers lacks qwen4_exp"
    )
    generator = torch.Generator().manual_seed(length)
    hidden = torch.randn(1, length, 64, generator=generator, dtype=torch.float64)
    angles = torch.arange(length)[:, None] * 0.37 ** torch.arange(32)[None]
    cos, sin = (f(torch.cat([angles, angles], -1)).double()[None] for f in (torch.cos, torch.sin))
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    rows = range(max(0, length - 12), length)  # every residue; all rows of a short text
    with torch.no_grad():
        indexer = _indexer(modeling, generator)
        mask = _last_rows(indexer, hidden, (cos, sin), causal, len(rows))
        q, keys = _projected(modeling, indexer, hidden, cos, sin)
    for line, position in enumerate(rows):
        expected = set(torch.nonzero(mask[line]).flatten().tolist())
        assert _selected(q[position], keys, position) == expected


def _indexer(modeling: Any, generator: torch.Generator) -> Any:
    from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig

    config = Qwen4ExpTextConfig(
        hidden_size=64,
        head_dim=256,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
        indexer_n_heads=4,
        indexer_kv_heads=1,
        indexer_head_dim=128,
        indexer_budget=2048,
        indexer_compress_ratio=4,
    )
    indexer = modeling.Qwen4ExpTextQSAIndexer(config, 0).double()
    for parameter in indexer.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return indexer


def _selected(q: torch.Tensor, keys: torch.Tensor, position: int) -> set[int]:
    """The tokens our oracles select for one row."""
    seen = (position + 1) // 4
    visible = torch.tensor([seen], dtype=torch.int32)
    table = torch.zeros(1, 1, dtype=torch.int32)
    blocks = torch.full((1, 512), -1, dtype=torch.int32)
    if seen:
        scores = reference.scores(q[None], keys[None], table, visible, rows_per_request=1)
        best = scores[0, :seen].topk(min(512, seen)).indices
        blocks[0, : len(best)] = best.int()
    chosen = expand_reference.expand(blocks, torch.tensor([position]), visible)[0]
    return set(chosen[: int(chosen[-1])].tolist())


def _last_rows(
    indexer: Any, hidden: torch.Tensor, rotary: Any, causal: torch.Tensor, last: int
) -> torch.Tensor:
    """The mask of the final rows only, with the earlier keys in a cache: the indexer is
    quadratic."""

    class Cached:
        def update_indexer(self, raw_keys: torch.Tensor, layer: int) -> torch.Tensor:
            raw = indexer.index_qk_proj(hidden)[..., -128:]
            assert torch.equal(raw[:, -last:], raw_keys)
            return raw

    mask: torch.Tensor = indexer(hidden[:, -last:], rotary, causal[None, None, -last:], Cached())[
        0, 0
    ]
    return mask


def _projected(
    modeling: Any, indexer: Any, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """q [T, 4, 128] and compressed keys [T / 4, 128], by the indexer's own norms and rotary."""
    projected = indexer.index_qk_proj(hidden)[0]
    q = indexer.q_layernorm(projected[:, :512].view(-1, 4, 128))
    q = modeling.apply_rotary_pos_emb(q[None], cos=cos, sin=sin, unsqueeze_dim=2)[0]
    complete = len(projected) // 4
    pooled = projected[: 4 * complete, 512:].view(complete, 4, 128).mean(1)
    pooled = indexer.k_layernorm(pooled)
    starts = torch.arange(complete) * 4
    keys = modeling.apply_rotary_pos_emb(pooled[:, None], cos=cos[0, starts], sin=sin[0, starts])[
        :, 0
    ]
    return q, keys
