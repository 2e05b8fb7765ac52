"""Virtual environments of the harnesses we compare with, each made from the package index once.

They live under .bench/ (ignored by git) and are made anew when their pins change.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("EVALHARNESS_BENCH", ROOT / ".bench"))


@dataclass(frozen=True, slots=True)
class Pins:
    """One environment: its name and what is installed in it."""

    name: str
    packages: tuple[str, ...]

    @property
    def bin(self) -> Path:
        """Its folder of programs."""
        return FOLDER / self.name / "bin"


LM_EVAL = Pins("lm-eval", ("lm_eval[api]==0.4.13",))
INSPECT = Pins("inspect-ai", ("inspect-ai==0.3.285", "openai==3.51.0"))


def ensure(pins: Pins) -> Path:
    """Return the environment's programs; makes it where it is absent or has other pins."""
    folder = FOLDER / pins.name
    stamp, wanted = folder / "pins.txt", "\n".join(pins.packages) + "\n"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return pins.bin
    print(f"installing {', '.join(pins.packages)} into {folder}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    command = [str(pins.bin / "python"), "-m", "pip", "install", "--quiet", "--prefer-binary"]
    subprocess.run([*command, *pins.packages], check=True, stdout=sys.stderr)
    stamp.write_text(wanted, encoding="utf-8")
    return pins.bin


def environment() -> dict[str, str]:
    """Return the environment of every measured process, ours and theirs alike.

    Byte code is kept, as it is wherever these tools are installed: some machines switch that off.
    """
    dropped = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "PYTHONPYCACHEPREFIX": str(FOLDER / "pycache")}
