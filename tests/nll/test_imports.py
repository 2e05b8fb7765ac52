"""The server's Python may lack evalharness's dependencies: what the processor needs is little."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import evalharness.nll.request, evalharness.nll.runner
heavy = {"aiohttp", "jsonschema", "orjson", "pandas", "rich", "ruamel", "scipy", "vllm", "torch"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_the_suite_imports_nothing_that_a_server_may_lack() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
