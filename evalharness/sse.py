"""Server-sent events: split a streamed body into its data payloads, and time their arrival.

Both halves count the same events: a block of lines that holds at least one `data:` line, ended
by a blank line. Comment blocks (keep-alives) are no events.
"""

from __future__ import annotations

DONE = "[DONE]"


def events(body: str) -> list[str]:
    """Return the data payload of every complete event in order, `[DONE]` included.

    A last block without its blank line is torn and left out.
    """
    payloads: list[str] = []
    data: list[str] = []
    for line in _lines(body):
        if line == "":
            if data:
                payloads.append("\n".join(data))
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line == "data":
            data.append("")
    return payloads


def _lines(body: str) -> list[str]:
    # Only CR, LF and CRLF end a line here; str.splitlines would also split at U+2028 in a payload.
    return body.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]


class EventClock:
    """Notes when each event of a body was complete. Feed it the chunks as they arrive."""

    def __init__(self) -> None:
        self.times_ns: list[int] = []
        self._line = bytearray()
        self._has_data = False
        self._after_cr = False

    def feed(self, chunk: bytes, now_ns: int) -> None:
        """Take the next bytes of the body; `now_ns` is when they arrived."""
        if not chunk:
            return
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines[:-1]:
            self._end_line(line, now_ns)
        self._keep(lines[-1])

    def _end_line(self, line: bytes, now_ns: int) -> None:
        self._keep(line)
        if not self._line:
            if self._has_data:
                self.times_ns.append(now_ns)
            self._has_data = False
        elif self._line.startswith(b"data:") or self._line == b"data":
            self._has_data = True
        self._line.clear()

    def _keep(self, part: bytes) -> None:
        # A line is told by its first bytes; keeping all of a huge one would double the memory.
        self._line += part[: max(0, 6 - len(self._line))]
