"""A word problem as a zero-shot chat request with a natural end (no stop strings)."""

from __future__ import annotations

import json

from evalharness.chat import chat_request, require_mode, require_template
from evalharness.types import Case, Request, RequestContext

MODES = ("chat",)
TEMPLATES = ("gsm8k/1",)

INSTRUCTION = (
    "Solve the following problem step by step. Write the final answer on the last line as "
    "#### followed by the number alone, for example: #### 42"
)


def to_request(case: Case, context: RequestContext) -> Request:
    """Return the request of a case. Raises ManifestError on an unknown mode or template."""
    require_mode(case, context, MODES)
    require_template(case, context, TEMPLATES)
    question = json.loads(case.prompt)["question"]
    message = {"role": "user", "content": f"{INSTRUCTION}\n\n{question}"}
    return chat_request(case, context, messages=[message])
