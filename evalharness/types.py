"""Value types that every part meets in. Imports nothing of ours.

Nested data stays canonical JSON text, so that values are hashable and truly frozen.
Times are nanoseconds of one process's monotonic clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

_T = TypeVar("_T")

Status = Literal["ok", "http_error", "transport_error", "timeout"]
Outcome = Literal["correct", "wrong", "unobserved"]
BodyEncoding = Literal["utf-8", "base64"]

CONTROL = "control"
AA = "aa"


def canonical_json(value: Any) -> str:
    """Return the one JSON text of `value`: sorted keys, no spaces, ASCII only.

    Integers of any size and escaped lone surrogates survive; NaN and infinities raise ValueError.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def sha256_hex(text: str) -> str:
    """Return the SHA-256 of the text's UTF-8 bytes as 64 hex digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@dataclass(frozen=True, slots=True)
class Case:
    """One item of a suite.

    `prompt` and `expected` are canonical JSON texts whose content the suite defines;
    `cluster_id` groups cases that share a source item (itself for most suites).
    """

    suite: str
    case_id: str
    cluster_id: str
    prompt: str
    expected: str

    @property
    def digest(self) -> str:
        """SHA-256 of the case's canonical JSON; what a manifest pins."""
        return sha256_hex(
            canonical_json(
                {
                    "case_id": self.case_id,
                    "expected": json.loads(self.expected),
                    "prompt": json.loads(self.prompt),
                    "suite": self.suite,
                }
            )
        )


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling of a suite, from its manifest. `max_tokens` counts generated tokens."""

    temperature: float
    top_p: float
    max_tokens: int
    extra: str = "{}"  # canonical JSON of further request fields, e.g. {"top_k": 20}


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a request depends on beside its case; equal across arms by construction."""

    model: str
    mode: str
    sampling: Sampling
    seed: int
    replicate: int
    template: str


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it will be sent: `endpoint` is a path such as /v1/chat/completions."""

    case_id: str
    replicate: int
    endpoint: str
    body_json: str
    stream: bool = False

    @property
    def digest(self) -> str:
        """SHA-256 over the endpoint and the exact body."""
        return sha256_hex(f"{self.endpoint}\n{self.body_json}")


@dataclass(frozen=True, slots=True)
class Response:
    """Everything observed for one request, exactly as received. Never retried, never replaced.

    `body` is the text of the whole body (a streamed one too), or its base64 where the bytes
    are not UTF-8. `chunk_ns` are arrival times of a streamed body's events, if it streamed.
    `first_byte_ns` and `done_ns` are None where that moment never came.
    """

    case_id: str
    replicate: int
    request_digest: str
    endpoint: str
    request_body: str
    status: Status
    http_code: int | None
    body: str
    body_encoding: BodyEncoding
    error: str | None
    sent_ns: int
    first_byte_ns: int | None
    done_ns: int | None
    in_flight: int
    chunk_ns: tuple[int, ...] = ()
    usage: str | None = None  # canonical JSON of the server's usage object
    finish_reason: str | None = None
    token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """A verdict of one scorer version on one stored response.

    `reason` is a short machine-readable tag (`valid`, `value_error:string`, ...);
    `detail` is a canonical JSON object with what the scorer wants kept beside it.
    """

    case_id: str
    replicate: int
    outcome: Outcome
    reason: str
    scorer: str
    detail: str = "{}"


@dataclass(frozen=True, slots=True)
class NllRow:
    """Log-probabilities (natural log) of one case's fixed continuation, token by token.

    `logprobs[i]` belongs to `token_ids[i]`; None marks a null or clamped value, which is
    counted and never summed. `pure[i]` says that, as far as a client can know, token i was
    made in a step where all C sequences were decoding. `unobserved` carries the reason.
    """

    case_id: str
    replicate: int
    mode: str
    outcome: Literal["observed", "unobserved"]
    reason: str
    scorer: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float | None, ...] = ()
    in_flight: tuple[int, ...] = ()
    pure: tuple[bool, ...] = ()
    top_logprobs: str = "[]"  # canonical JSON: per token {token id: logprob}, where asked for


@dataclass(frozen=True, slots=True)
class Arm:
    """One combination of levels. `digest` covers what can change the model's numbers."""

    name: str
    levels: tuple[tuple[str, str], ...]
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    model_path: str | None
    served_name: str
    python: str | None
    endpoint: str | None  # base_url of a server somebody else runs
    api_key_env: str | None
    digest: str

    def level(self, factor: str) -> str:
        """Return the arm's level of `factor`; KeyError if it has none."""
        return dict(self.levels)[factor]


@dataclass(frozen=True, slots=True)
class Launch:
    """One server start of an arm. `number` counts launches of the whole run from 1."""

    arm: str
    number: int

    @property
    def dirname(self) -> str:
        """Directory name of the launch under its arm: 001, 002, ..."""
        return f"{self.number:03d}"


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Part `number` (from 1) of a case list that is dealt out to `of` launches."""

    number: int = 1
    of: int = 1

    @property
    def text(self) -> str:
        """`2of3`; empty where the list is whole."""
        return f"{self.number}of{self.of}" if self.of > 1 else ""

    def part(self, items: Sequence[_T]) -> Sequence[_T]:
        """Return this shard's items: dealt out in turn, so that every shard is a cross-section."""
        return items[self.number - 1 :: self.of]


WHOLE = Shard()


@dataclass(frozen=True, slots=True, order=True)
class CellKey:
    """Arm x suite x mode x concurrency x replay, and the shard where the plan has shards."""

    arm: str
    suite: str
    mode: str
    concurrency: int
    replicate: int
    shard: Shard = WHOLE

    @property
    def filename(self) -> str:
        """File stem of the cell in a launch's folder: <suite>.<mode>-c<C>-r<k>[-s<i>of<n>]."""
        part = f"-s{self.shard.text}" if self.shard.of > 1 else ""
        return f"{self.suite}.{self.mode}-c{self.concurrency}-r{self.replicate}{part}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as it was run in one launch."""

    key: CellKey
    launch: Launch
    state: Literal["complete", "aborted", "incomplete"]
    reason: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)
