"""How a module of this package is started as a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def module_command(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return argv and environment that run `module` with this interpreter and this package.

    Safe path: the child's working directory cannot put another module of the same name first.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    argv = [sys.executable, "-P", "-W", "ignore", "-m", module, *arguments]
    return argv, {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
