"""What the model said in a stored response, as text a reader can compare."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from evalharness.chat import Reply, read_reply
from evalharness.runs import StoredCell
from evalharness.stored_rows import loads_line
from evalharness.types import Response, canonical_json

# One answer is shown up to this many characters; all answers of a report up to the total.
ANSWER_CHARS = 4_000
TOTAL_CHARS = 3_000_000


def responses(cell: StoredCell, wanted: Collection[str] | None = None) -> Iterator[Response]:
    """Yield a complete cell's stored responses in file order, one in memory at a time.

    A cell that is not complete may be damaged, and is not read.
    """
    if cell.state != "complete":
        return
    with cell.responses.open("rb") as lines:
        for line in lines:
            row = loads_line(line)
            if wanted is None or row["case_id"] in wanted:
                yield _response(row)


def _response(row: Mapping[str, Any]) -> Response:
    usage = row["usage"]
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
        usage=None if usage is None else canonical_json(usage),
        finish_reason=row["finish_reason"],
        token_ids=None if row["token_ids"] is None else tuple(row["token_ids"]),
    )


def answer_text(response: Response) -> str:
    """Return the answer as text: content, then each tool call on its own line.

    A response that cannot be read as a reply gives its status, error and body instead.
    """
    reply = read_reply(response)
    if not isinstance(reply, Reply):
        return f"[{reply.reason}] {response.error or ''}\n{response.body}".rstrip()
    calls = [f"{call.name}({call.arguments})" for call in reply.calls]
    return "\n".join(part for part in (reply.content, *calls) if part)


def cut_answer(text: str, limit: int = ANSWER_CHARS) -> dict[str, Any]:
    """Return the text cut to `limit` characters, with its whole length in characters.

    Lone surrogates become their escapes, since no UTF-8 file can hold them.
    """
    shown = text[:limit].encode("utf-8", "backslashreplace").decode("utf-8")
    return {"text": shown, "chars": len(text), "cut": len(text) > limit}
