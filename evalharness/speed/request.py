"""A prompt shape as a streamed completion of forced length.

The ids come from SHAKE-256 of case id and seed: equal in every arm, and new in every repeat, so
no prefix of an earlier repeat can be in a cache. vLLM's `ignore_eos` forces the length, and its
`continuous_usage_stats` say how many tokens each event carries.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np

from evalharness.chat import require_mode, require_template
from evalharness.errors import ManifestError
from evalharness.speed.cases import shape_of
from evalharness.types import Case, Request, RequestContext, canonical_json

MODES = ("stream",)
TEMPLATES = ("speed/1",)
ENDPOINT = "/v1/completions"


def to_request(case: Case, context: RequestContext) -> Request:
    """Return the request of a case; `sampling.max_tokens` is the forced length.

    Raises ManifestError on an unknown mode or template, or an `extra` field of our own.
    """
    require_mode(case, context, MODES)
    require_template(case, context, TEMPLATES)
    sampling = context.sampling
    body = {
        "model": context.model,
        "prompt": prompt_ids(case, context.seed),
        "max_tokens": sampling.max_tokens,
        "ignore_eos": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": context.seed,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    extra = json.loads(sampling.extra)
    if clash := sorted(set(extra) & set(body)):
        raise ManifestError(
            f"speed: sampling.extra of the manifest sets {', '.join(clash)}, which the harness "
            "sets itself; expected further fields only; remove them from `extra`"
        )
    return Request(
        case_id=case.case_id,
        replicate=context.replicate,
        endpoint=ENDPOINT,
        body_json=canonical_json(body | extra),
        stream=True,
    )


def prompt_ids(case: Case, seed: int) -> list[int]:
    """Return the prompt's token ids: the same for the same case and seed on every machine."""
    shape = shape_of(case)
    name = canonical_json([case.case_id, seed]).encode("ascii")
    drawn = np.frombuffer(hashlib.shake_256(name).digest(4 * shape.prompt_tokens), dtype="<u4")
    span = shape.highest_id - shape.lowest_id + 1
    return [int(one) for one in drawn % span + shape.lowest_id]
