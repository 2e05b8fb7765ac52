"""What the model said in a stored response, as text a reader can compare."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from evalharness.chat import Reply, read_reply
from evalharness.runs import StoredCell
from evalharness.store.reader import iter_responses
from evalharness.types import Response

# One answer is shown up to this many characters; all answers of a report up to the total.
ANSWER_CHARS = 4_000
TOTAL_CHARS = 3_000_000


def responses(cell: StoredCell, wanted: Collection[str] | None = None) -> Iterator[Response]:
    """Yield a complete cell's stored responses in file order, one in memory at a time.

    A cell, or a shard of one, that is not complete may be damaged, and is not read.
    """
    for part in cell.parts or (cell,):
        if part.state != "complete":
            continue
        for stored in iter_responses(part.responses):
            if wanted is None or stored.response.case_id in wanted:
                yield stored.response


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
