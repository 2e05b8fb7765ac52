"""Token log-probabilities beside the NLL verdict: perplexity, KL, the deltas' distribution."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalharness.nll.body import BodyError, read_prefill, read_stream
from evalharness.pairing import Slot, find_cell, nll_reason, slots
from evalharness.report.answers import responses
from evalharness.runs import Run
from evalharness.stored_rows import CaseNll
from evalharness.verdicts.types import NllTable

# |delta| at which the tail is read, in nats: five a decade from 1e-5 to 10.
GRID = tuple(float(f"{10 ** (k / 5):.3g}") for k in range(-25, 6))
QUANTILES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
Where = tuple[str, str, int]


def perplexity_rows(where: Where, table: NllTable) -> Iterator[dict[str, Any]]:
    """Perplexity of each arm over its own non-null tokens, all replays together."""
    for a, arm in enumerate(table.arms):
        values = table.logprobs[a]
        known = values[~np.isnan(values)]
        yield {
            **_place(where, arm),
            "tokens": int(known.size),
            "nulls": int(values.size - known.size),
            "perplexity": math.exp(-float(known.mean())) if known.size else None,
        }


def delta_rows(where: Where, table: NllTable) -> Iterator[dict[str, Any]]:
    """NLL deltas (arm minus control, nats) over tokens known to both.

    `above[i]` and `below[i]` are shares of tokens with delta > grid[i] and < -grid[i]; the
    quantiles are of the signed delta, token-weighted. The A/A arm's row is the noise floor.
    """
    for a, arm in enumerate(table.arms[1:], start=1):
        delta = _deltas(table, a)
        if not delta.size:
            continue
        yield {
            **_place(where, arm),
            "tokens": int(delta.size),
            "zero_share": float(np.mean(delta == 0)),
            "quantiles": dict(
                zip(map(str, QUANTILES), map(float, np.quantile(delta, QUANTILES)), strict=True)
            ),
            "grid": list(GRID),
            "above": [float(np.mean(delta > x)) for x in GRID],
            "below": [float(np.mean(delta < -x)) for x in GRID],
        }


def _deltas(table: NllTable, arm: int) -> NDArray[np.float64]:
    delta = table.logprobs[0] - table.logprobs[arm]
    return np.asarray(delta[~np.isnan(delta)])


def _place(where: Where, arm: str) -> dict[str, Any]:
    suite, mode, concurrency = where
    return {"arm": arm, "suite": suite, "mode": mode, "concurrency": concurrency}


def kl_rows(runs: Sequence[Run], where: Where, table: NllTable) -> Iterator[dict[str, Any]]:
    """KL(control || arm) per token over the top-k log-probabilities both sides returned.

    Tokens in both lists keep their probability, all others are one bucket: a lower bound of
    the true KL (coarse-graining never raises it). No row where the server gave no top-k.
    """
    for arm in table.arms[1:]:
        values: list[float] = []
        ks: set[int] = set()
        for slot in slots(runs):
            control = find_cell(runs, slot, where=where, arm=table.arms[0])
            other = find_cell(runs, slot, where=where, arm=arm)
            if control is None or other is None:
                continue
            for case_id in sorted(set(control.nll) & set(other.nll)):
                for one, two in _aligned(control.nll[case_id], other.nll[case_id]):
                    ks.add(min(len(one), len(two)))
                    values.append(kl_top(one, two))
        if values:
            yield {
                **_place(where, arm),
                "tokens": len(values),
                "k": min(ks),
                "mean": float(np.mean(values)),
                "quantile_99": float(np.quantile(values, 0.99)),
                "max": max(values),
            }


def _aligned(
    control: CaseNll, arm: CaseNll
) -> Iterator[tuple[Mapping[str, float], Mapping[str, float]]]:
    if not control.observed or nll_reason(arm, control.token_ids):
        return
    for one, two in zip(control.top, arm.top, strict=False):
        if one and two:
            yield one, two


def kl_top(control: Mapping[str, float], arm: Mapping[str, float]) -> float:
    """KL in nats between two truncated distributions {token id: logprob}; never negative."""
    shared = [(control[t], arm[t]) for t in control if t in arm]
    total = sum(math.exp(p) * (p - q) for p, q in shared)
    rest_p = 1.0 - sum(math.exp(p) for p, _ in shared)
    rest_q = 1.0 - sum(math.exp(q) for _, q in shared)
    # Rounded log-probabilities can sum to a little over one; then nothing is left to compare.
    if rest_p > 1e-9 and rest_q > 1e-9:
        total += rest_p * math.log(rest_p / rest_q)
    return max(total, 0.0)


def token_text(
    runs: Sequence[Run], slot: Slot, *, where: Where, arm: str, case_id: str, position: int
) -> str | None:
    """Return the text of a forced token as the server named it, None where it did not."""
    cell = find_cell(runs, slot, where=where, arm=arm)
    if cell is None or case_id not in cell.nll:
        return None
    size = len(cell.nll[case_id].token_ids)
    for response in responses(cell, {case_id}):
        texts = _texts(response.body, where[1])
        # the forced tokens are the last ones of a prefilled prompt, and all of a decoded answer
        if len(texts) >= size:
            return texts[len(texts) - size + position]
    return None


def _texts(body: str, mode: str) -> list[str]:
    try:
        return (read_prefill(body) if mode == "prefill" else read_stream(body)).texts
    except BodyError:
        return []
