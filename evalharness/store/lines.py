"""Response lines: Response <-> one line of a response file, with a check that finds damage.

The line ends with `,"check":"<16 hex>"}`: the first 16 hex digits of the SHA-256 of the line
without that member. Format: formats/response.schema.json.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import orjson

from evalharness.types import Request, Response, canonical_json

_MARK = b',"check":"'
_TAIL_BYTES = len(_MARK) + 16 + len(b'"}')


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as it was read back; `check` ties scores to exactly this line."""

    response: Response
    check: str


class LineHead:
    """The part of a line that only its request decides, encoded and hashed once for all arms."""

    __slots__ = ("hash", "request_digest", "text")

    def __init__(self, request: Request, digest: str) -> None:
        self.request_digest = digest
        row = {
            "case_id": request.case_id,
            "replicate": request.replicate,
            "request": {
                "digest": digest,
                "endpoint": request.endpoint,
                "body": request.body_json,
            },
        }
        self.text = _dumps(row)[:-1] + b","
        self.hash = hashlib.sha256(self.text)


def encode_line(response: Response, head: LineHead | None = None) -> bytes:
    """Return the response's line, newline included. `head` is its request's, if at hand."""
    if head is None or head.request_digest != response.request_digest:
        request = Request(
            response.case_id, response.replicate, response.endpoint, response.request_body
        )
        head = LineHead(request, response.request_digest)
    rest = _rest(response)
    digest = head.hash.copy()
    digest.update(rest)
    return b'%b%b%b%b"}\n' % (head.text, rest[:-1], _MARK, digest.hexdigest()[:16].encode("ascii"))


def _rest(response: Response) -> bytes:
    """Return what the server's answer decides, from after the head to the closing brace."""
    usage = response.usage
    row = {
        "status": response.status,
        "http_code": response.http_code,
        "body": response.body,
        "body_encoding": response.body_encoding,
        "error": response.error,
        "sent_ns": response.sent_ns,
        "first_byte_ns": response.first_byte_ns,
        "done_ns": response.done_ns,
        "in_flight": response.in_flight,
        "chunk_ns": response.chunk_ns,
        "usage": orjson.Fragment(usage) if usage is not None else None,
        "finish_reason": response.finish_reason,
        "token_ids": response.token_ids,
    }
    try:
        return orjson.dumps(row)[1:]
    except TypeError:
        row["usage"] = json.loads(usage) if usage is not None else None
        return canonical_json(row).encode("ascii")[1:]


def _dumps(row: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(row)
    except TypeError:
        # Lone surrogates (a case id, an error's text) have no UTF-8; JSON's escapes can hold them.
        return canonical_json(row).encode("ascii")


def decode_line(line: bytes) -> StoredResponse:
    """Return the response of one line (without its newline).

    Raises ValueError saying what is wrong: torn, altered, or not a response.
    """
    mark = len(line) - _TAIL_BYTES
    if mark < 1 or line[mark : mark + len(_MARK)] != _MARK or not line.endswith(b'"}'):
        raise ValueError("torn: it does not end with its check")
    check = line[mark + len(_MARK) : -2].decode("ascii", "replace")
    found = hashlib.sha256(line[:mark] + b"}").hexdigest()[:16]
    if found != check:
        raise ValueError(f"altered: its check says {check!r}, its bytes give {found!r}")
    try:
        return StoredResponse(_response(_loads(line)), check)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a response: {type(error).__name__} {error}") from error


def _loads(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line)  # escaped lone surrogates, which the fast parser refuses


def _response(row: dict[str, Any]) -> Response:
    usage = row["usage"]
    token_ids = row["token_ids"]
    return Response(
        case_id=row["case_id"],
        replicate=row["replicate"],
        request_digest=row["request"]["digest"],
        endpoint=row["request"]["endpoint"],
        request_body=row["request"]["body"],
        status=row["status"],
        http_code=row["http_code"],
        body=row["body"],
        body_encoding=row["body_encoding"],
        error=row["error"],
        sent_ns=row["sent_ns"],
        first_byte_ns=row["first_byte_ns"],
        done_ns=row["done_ns"],
        in_flight=row["in_flight"],
        chunk_ns=tuple(row["chunk_ns"]),
        usage=orjson.dumps(usage, option=orjson.OPT_SORT_KEYS).decode() if usage else None,
        finish_reason=row["finish_reason"],
        token_ids=tuple(token_ids) if token_ids is not None else None,
    )
