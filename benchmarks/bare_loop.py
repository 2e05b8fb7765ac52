"""The loop anyone would write, as a process: send every row's question at C16 and read the reply.

python -m benchmarks.bare_loop URL ROWS.jsonl
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import aiohttp

WIDTH = 16


async def main(url: str, path: Path) -> None:
    """Ask everything; raises where a reply is not 200."""
    bodies = [
        json.dumps(
            {
                "model": "bench",
                "messages": [{"role": "user", "content": json.loads(line)["question"]}],
                "max_tokens": 256,
            }
        ).encode()
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    queue = iter(bodies)
    connector = aiohttp.TCPConnector(limit=WIDTH)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:

        async def worker() -> None:
            for body in queue:
                async with session.post(f"{url}/v1/chat/completions", data=body) as reply:
                    chunks = [chunk async for chunk in reply.content.iter_any()]
                if reply.status != 200 or not chunks:
                    raise SystemExit(f"HTTP {reply.status}")

        await asyncio.gather(*(worker() for _ in range(WIDTH)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
