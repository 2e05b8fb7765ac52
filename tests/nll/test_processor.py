"""The logits processor itself, on both interfaces, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from evalharness.nll.request import FORCED_KEY

pytest.importorskip("vllm", reason="vLLM is not installed; see requirements/install.py")
pytestmark = pytest.mark.slow

import torch  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality  # noqa: E402

from evalharness.nll.processor import ForcedTokens, forced_ids  # noqa: E402

VOCAB = 11
CONFIG: Any = SimpleNamespace(model_config=SimpleNamespace(get_vocab_size=lambda: VOCAB))


def params(ids: list[int] | None) -> SamplingParams:
    """Sampling parameters that ask for ids."""
    return SamplingParams(extra_args=None if ids is None else {FORCED_KEY: ids})


def picks(logits: torch.Tensor) -> list[int]:
    """The token a row allows, or -1 where it allows all."""
    return [int(row.argmax()) if torch.isinf(row).sum() == VOCAB - 1 else -1 for row in logits]


def update(size: int, *, removed: Any = (), added: Any = (), moved: Any = ()) -> BatchUpdate:
    """A change of the V1 batch."""
    return BatchUpdate(batch_size=size, removed=removed, added=added, moved=moved)


def test_v1_follows_rows_as_they_come_go_and_move() -> None:
    processor = ForcedTokens(CONFIG, torch.device("cpu"), False)
    outputs: list[list[int]] = [[], [], []]
    asked = [[5, 6], None, [7, 8, 9]]
    added = [(i, params(asked[i]), [1], outputs[i]) for i in range(3)]
    processor.update_state(update(3, added=added))
    assert picks(processor.apply(torch.zeros(3, VOCAB))) == [5, -1, 7]
    outputs[0].append(5)
    outputs[2].append(7)
    processor.update_state(None)
    assert picks(processor.apply(torch.zeros(3, VOCAB))) == [6, -1, 8]
    processor.update_state(update(3, moved=[(0, 2, MoveDirectionality.SWAP)]))
    assert picks(processor.apply(torch.zeros(3, VOCAB))) == [8, -1, 6]
    processor.update_state(
        update(2, removed=[1], moved=[(2, 1, MoveDirectionality.UNIDIRECTIONAL)])
    )
    assert picks(processor.apply(torch.zeros(2, VOCAB))) == [8, 6]
    # A new request in an old row takes nothing from its predecessor.
    processor.update_state(update(2, added=[(0, params(None), [1], [])]))
    assert picks(processor.apply(torch.zeros(2, VOCAB))) == [-1, 6]


def test_v1_stops_forcing_at_the_end_and_ignores_ids_outside_the_vocabulary() -> None:
    processor = ForcedTokens(CONFIG, torch.device("cpu"), False)
    ended: list[int] = [3]
    outside: list[int] = []
    processor.update_state(
        update(2, added=[(0, params([3]), [1], ended), (1, params([VOCAB]), [1], outside)])
    )
    assert picks(processor.apply(torch.zeros(2, VOCAB))) == [-1, -1]


def slots(prompt_len: list[int]) -> tuple[ForcedTokens, Any]:
    """A processor on the V2 interface and its request state."""
    state: Any = SimpleNamespace(
        device=torch.device("cpu"),
        max_num_reqs=len(prompt_len),
        total_len=None,
        prompt_len=SimpleNamespace(gpu=torch.tensor(prompt_len, dtype=torch.int32)),
    )
    return ForcedTokens(CONFIG, state), state


def layout(mapping: list[int], pos: list[int]) -> Any:
    """A V2 step's layout."""
    return SimpleNamespace(
        expanded_idx_mapping=torch.tensor(mapping, dtype=torch.int32), pos=torch.tensor(pos)
    )


def test_v2_counts_from_the_prompt_whatever_the_rows_order() -> None:
    processor, _ = slots([4, 2, 3])
    assert processor.add_request(0, params([5, 6])) is True
    assert processor.add_request(1, params(None)) is False
    assert processor.add_request(2, params(list(range(10)) * 20)) is True
    processor.apply_staged_writes()
    # The last prompt token (position prompt - 1) gives output token 0.
    logits = processor.apply(torch.zeros(3, VOCAB), layout([2, 0, 1], [2, 3, 1]))
    assert picks(logits) == [0, 5, -1]
    logits = processor.apply(torch.zeros(3, VOCAB), layout([0, 1, 2], [4, 2, 2 + 137]))
    assert picks(logits) == [6, -1, 7]
    # Past the end, inside the prompt (a chunk of its prefill), and a padding row: untouched.
    logits = processor.apply(torch.zeros(3, VOCAB), layout([0, 0, -1], [5, 1, 3]))
    assert picks(logits) == [-1, -1, -1]


def test_v2_keeps_the_forced_logit_and_clears_a_reused_slot() -> None:
    processor, _ = slots([1])
    processor.add_request(0, params([4]))
    processor.apply_staged_writes()
    logits = torch.arange(VOCAB, dtype=torch.float32)[None].clone()
    assert processor.apply(logits, layout([0], [0]))[0, 4] == 4.0
    processor.add_request(0, params(None))
    processor.apply_staged_writes()
    assert picks(processor.apply(torch.zeros(1, VOCAB), layout([0], [0]))) == [-1]


@pytest.mark.parametrize("bad", ["5", [-1], [1.5], [True], {"a": 1}])
def test_a_malformed_list_is_refused_at_the_door(bad: object) -> None:
    wrong = SamplingParams(extra_args={FORCED_KEY: bad})
    with pytest.raises(ValueError, match=FORCED_KEY):
        ForcedTokens.validate_params(wrong)
    assert forced_ids(params(None)) is None
