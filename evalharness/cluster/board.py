"""What is still to be launched on which node, shared by the slots that take from it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence

from evalharness.arms import PlannedLaunch


class Board:
    """Launches wait for their node; those of a lost node move to the others, blocks together.

    Use within one event loop.
    """

    def __init__(self, placed: Mapping[PlannedLaunch, str], nodes: Sequence[str]) -> None:
        self._waiting: dict[str, deque[PlannedLaunch]] = {node: deque() for node in nodes}
        for launch, node in placed.items():
            self._waiting[node].append(launch)
        self._running = 0
        self._closed = False
        self._changed = asyncio.Condition()

    async def take(self, node: str) -> PlannedLaunch | None:
        """Return the node's next launch, None once there can be none any more.

        Waits while other nodes are at work: theirs may still come here.
        """
        async with self._changed:
            while True:
                queue = self._waiting.get(node)
                if self._closed or queue is None:
                    return None
                if queue:
                    self._running += 1
                    return queue.popleft()
                if not self._running and not any(self._waiting.values()):
                    return None
                await self._changed.wait()

    async def done(self) -> None:
        """A launch that was taken has ended."""
        async with self._changed:
            self._running -= 1
            self._changed.notify_all()

    async def again(self, node: str, launch: PlannedLaunch, *, lost: bool) -> bool:
        """Take a launch back to run it again: first on its node or, where that is lost, elsewhere.

        Returns whether any node is left to run it.
        """
        async with self._changed:
            if not lost and node in self._waiting:
                self._waiting[node].appendleft(launch)
            else:
                self._move([launch, *self._waiting.pop(node, ())])
            self._changed.notify_all()
            return bool(self._waiting)

    def _move(self, launches: Sequence[PlannedLaunch]) -> None:
        homes: dict[tuple[tuple[int, ...], int], str] = {}
        for launch in launches:
            if not self._waiting:
                return
            block = (launch.replicates, launch.shard)
            if block not in homes:
                homes[block] = min(self._waiting, key=lambda name: len(self._waiting[name]))
            self._waiting[homes[block]].append(launch)

    async def close(self) -> None:
        """Hand out nothing more."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
