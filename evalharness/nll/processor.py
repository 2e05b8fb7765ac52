"""Forces tokens during decode. Loaded into vLLM, the only module here that imports it.

    --logits-processors evalharness.nll.processor:ForcedTokens

A request carries its ids in `vllm_xargs` (see request.FORCED_KEY). At output position t all
logits but forced[t]'s become -inf, so that the sampler can only pick that token; in the default
logprobs mode (raw_logprobs) the reported log-probability is still the model's own. Requests
without the key are left alone.

One class for both model runners, which differ in how they build and call a processor:
V1 tells it about the batch's rows (update_state), V2 about request slots (add_request) and keeps
counters on the device. Interfaces: vllm.v1.sample.logits_processor and
vllm.v1.worker.gpu.sample.logits_processor of vLLM 0.32.0.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.logger import init_logger
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import LogitsProcessor as RowProcessor
from vllm.v1.sample.logits_processor import MoveDirectionality
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsProcessor as SlotProcessor

from evalharness.nll.request import FORCED_KEY
from evalharness.nll.runner import announcement

# Under vLLM's own name, so that its handler writes the line to the server's log.
logger = init_logger("vllm.evalharness.forced_tokens")

MINUS_INF = float("-inf")


def forced_ids(params: SamplingParams) -> list[int] | None:
    """Return the ids a request asks to be forced, None where it asks for none.

    Raises ValueError where the value is not a list of non-negative integers.
    """
    value = (params.extra_args or {}).get(FORCED_KEY)
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        raise ValueError(f"{FORCED_KEY}: expected a list of token ids of 0 or more")
    return value


class ForcedTokens(RowProcessor, SlotProcessor):  # type: ignore[misc]
    """See the module's text. Rows and slots never mix: a server has one runner."""

    def __init__(self, vllm_config: Any, place: Any, *_pin_memory: bool) -> None:
        """V1 passes (config, device, pin_memory), V2 (config, request state)."""
        self._vocab = int(vllm_config.model_config.get_vocab_size())
        self._rows: _Rows | None = None
        self._slots: _Slots | None = None
        if hasattr(place, "total_len"):
            self._slots = _Slots(place)
        else:
            self._rows = _Rows(place)
        logger.info("%s", announcement("v2" if self._slots else "v1"))

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a malformed list when the request comes in (HTTP 400)."""
        forced_ids(sampling_params)

    def is_argmax_invariant(self) -> bool:
        """Forcing changes the argmax, so greedy requests need the processor too."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """V1: follow the batch's rows."""
        if self._rows is not None and batch_update is not None:
            self._rows.update(batch_update, self._wanted)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """V2: take or clear a slot; say whether this request is forced."""
        if self._slots is None:
            raise RuntimeError("add_request came to a processor made for the V1 runner")
        return self._slots.add(req_idx, self._wanted(sampling_params) or [])

    def apply_staged_writes(self) -> None:
        """V2: bring new requests' ids to the device."""
        if self._slots is not None:
            self._slots.flush()

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        """Force in place. logits: [rows, vocabulary]."""
        if self._slots is not None:
            return self._slots.apply(logits, ctx)
        if self._rows is None:
            raise RuntimeError("no runner's state")
        return self._rows.apply(logits)

    def _wanted(self, params: SamplingParams) -> list[int] | None:
        """Ids to force; None also where one is outside the vocabulary.

        Indexing past the logits would kill the server; unforced, the client sees the mismatch.
        """
        ids = forced_ids(params)
        return ids if ids and max(ids) < self._vocab else None


class _Rows:
    """V1: batch row -> (forced ids, the request's live list of output tokens)."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._requests: dict[int, tuple[list[int], list[int]]] = {}

    def update(self, change: Any, wanted: Any) -> None:
        # The order is the interface's: removed, added, moved.
        for row in change.removed:
            self._requests.pop(row, None)
        for row, params, _prompt, output in change.added:
            ids = wanted(params)
            self._requests.pop(row, None)
            if ids:
                self._requests[row] = (ids, output)
        for one, two, direction in change.moved:
            moving, other = self._requests.pop(one, None), self._requests.pop(two, None)
            if moving is not None:
                self._requests[two] = moving
            if direction == MoveDirectionality.SWAP and other is not None:
                self._requests[one] = other

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        pairs = [
            (row, ids[len(output)])
            for row, (ids, output) in self._requests.items()
            if len(output) < len(ids)
        ]
        if not pairs:
            return logits
        index = torch.tensor(pairs, dtype=torch.long).to(self._device, non_blocking=True)
        rows, tokens = index[:, 0], index[:, 1]
        logits.index_fill_(0, rows, MINUS_INF)
        logits[rows, tokens] = 0.0
        return logits


class _Slots:
    """V2: per-slot table of forced ids on the device; no synchronisation in a step.

    The table's width grows to the longest list seen, so a long model length costs nothing.
    """

    def __init__(self, state: Any) -> None:
        self._state = state
        self._table = torch.zeros((state.max_num_reqs, 64), dtype=torch.long, device=state.device)
        self._sizes = torch.zeros(state.max_num_reqs, dtype=torch.long, device=state.device)
        self._staged: dict[int, list[int]] = {}

    def add(self, slot: int, ids: list[int]) -> bool:
        # An empty list too: the slot may hold its last occupant's ids.
        self._staged[slot] = ids
        return bool(ids)

    def flush(self) -> None:
        for slot, ids in self._staged.items():
            self._widen(len(ids))
            if ids:
                self._table[slot, : len(ids)] = torch.tensor(ids, dtype=torch.long)
            self._sizes[slot] = len(ids)
        self._staged.clear()

    def _widen(self, needed: int) -> None:
        width = self._table.shape[1]
        if needed > width:
            wider = self._table.new_zeros((self._table.shape[0], max(needed, 2 * width)))
            wider[:, :width] = self._table
            self._table = wider

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
        slots = ctx.expanded_idx_mapping.long()
        safe = slots.clamp(min=0)
        # The row fed position `pos`; what is sampled now is output token pos + 1 - prompt length.
        step = ctx.pos.long() + 1 - self._state.prompt_len.gpu[safe].long()
        active = (slots >= 0) & (step >= 0) & (step < self._sizes[safe])
        column = step.clamp(min=0, max=self._table.shape[1] - 1)
        token = torch.where(active, self._table[safe, column], torch.zeros_like(safe))
        kept = logits.gather(1, token[:, None])
        logits.masked_fill_(active[:, None], MINUS_INF)
        return logits.scatter_(1, token[:, None], kept)
