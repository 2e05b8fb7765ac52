"""When C streams have been in decode, all of them and nothing else, for long enough.

An output is one token that arrived. The first output of a stream comes from its prefill. Once
every stream has made its first and none has ended, each stream's outputs are counted: nobody's
prefill and nobody's absence can lie in their steps. The first of those may have been under way
before that moment, so it is not confirmed.
"""

from __future__ import annotations


class PureDecodeGate:
    """Counts outputs per stream. Pure: it is told what happened, and decides.

    concurrency: streams. confirm: confirmed outputs in a row that every stream has to make.
    """

    def __init__(self, concurrency: int, confirm: int) -> None:
        if concurrency < 1 or confirm < 1:
            raise ValueError(f"concurrency {concurrency} and confirm {confirm}: at least 1 each")
        self._confirm = confirm
        self._outputs = [0] * concurrency
        self._since = [0] * concurrency
        self._ended = [False] * concurrency
        self._pure = False

    def outputs(self, stream: int, count: int = 1) -> None:
        """Stream made `count` outputs, which arrived together."""
        first = self._outputs[stream] == 0
        self._outputs[stream] += count
        if first:
            self._restart()
        elif self._pure:
            self._since[stream] += count

    def ended(self, stream: int) -> None:
        """Stream ended, however: nothing is confirmed from here on."""
        self._ended[stream] = True
        self._restart()

    def _restart(self) -> None:
        self._since = [0] * len(self._since)
        self._pure = all(self._outputs) and not any(self._ended)

    @property
    def confirmed(self) -> int:
        """Outputs in a row that every stream has made and that are confirmed."""
        return max(0, min(self._since) - 1)

    @property
    def open(self) -> bool:
        """True once every stream has made the number asked for."""
        return self.confirmed >= self._confirm

    @property
    def broken(self) -> bool:
        """True once a stream has ended: the gate cannot open any more."""
        return any(self._ended)

    def made(self) -> tuple[int, ...]:
        """Outputs of each stream so far."""
        return tuple(self._outputs)
