"""Write the hash-pinned lock files from demo.in and dev.in (Python 3.11, Linux x86-64).

    python requirements/make_lock.py

demo.lock        everything the demo needs to run vLLM's CPU build and evalharness
dev.lock         what the tests and checks need beside it
torch-cuda.lock  what torch's registry wheel needs beside it where no CPU wheel of torch is to be
                 had (requirements/install.py finds out and says so)

torchvision, torchaudio and torchcodec are left out: they break transformers' import where they
do not match torch, and text models do not need them. torch carries the hashes of its registry
wheel and of the CPU wheel, so that either satisfies the lock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec"}
TORCH = "torch==2.13.0"
# The CPU build of that release, wherever pip finds it; not on the registry itself.
TORCH_CPU_SHA256 = "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"

Pins = dict[str, tuple[str, str]]


def canonical(name: str) -> str:
    """Return a distribution's normalised name (PEP 503)."""
    return name.lower().replace("_", "-").replace(".", "-")


def resolve(arguments: list[str], *, registry_only: bool = False) -> Pins:
    """Let pip resolve; return name -> (version without local part, sha256).

    `registry_only` leaves out every local index and directory that pip is set up with.
    """
    environment = dict(os.environ)
    if registry_only:
        environment.update(PIP_CONFIG_FILE=os.devnull, PIP_FIND_LINKS="")
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--quiet", "--only-binary", ":all:", "--report", str(report), *arguments]
        subprocess.run(command, check=True, env=environment, timeout=900)
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return {
        canonical(item["metadata"]["name"]): (
            item["metadata"]["version"].split("+")[0],
            item["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for item in found["install"]
    }


def write_lock(path: Path, pins: Pins, *, purpose: str) -> None:
    """Write one lock file, sorted by name."""
    how = "# Made by requirements/make_lock.py; install with --no-deps --require-hashes."
    lines = [f"# {purpose}", how]
    for name, (version, digest) in sorted(pins.items()):
        digests = sorted({digest, TORCH_CPU_SHA256}) if name == "torch" else [digest]
        hashes = " \\\n".join(f"    --hash=sha256:{one}" for one in digests)
        lines.append(f"{name}=={version} \\\n{hashes}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Resolve, check that every hash is the registry's own, write the three files."""
    demo, dev = str(HERE / "demo.in"), str(HERE / "dev.in")
    both = resolve(["-r", demo, "-r", dev])
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch) / "constraints.txt"
        constraints.write_text("".join(f"{n}=={v}\n" for n, (v, _) in both.items()), "utf-8")
        needed = set(resolve(["-r", demo, "-c", str(constraints)])) - LEFT_OUT
        kept = [f"{n}=={v}" for n, (v, _) in both.items() if n not in LEFT_OUT]
        registry = resolve(["--no-deps", *kept], registry_only=True)
    torch = resolve([TORCH], registry_only=True)
    differing = {n for n, pin in registry.items() if n != "torch" and both[n] != pin}
    if differing:
        message = f"error: local files differ from the registry's: {sorted(differing)}"
        print(message, file=sys.stderr)
        return 2
    demo_pins = {name: pin for name, pin in registry.items() if name in needed}
    dev_pins = {name: pin for name, pin in registry.items() if name not in needed}
    write_lock(HERE / "demo.lock", demo_pins, purpose="Demo.")
    write_lock(HERE / "dev.lock", dev_pins, purpose="Tests and checks, beside demo.lock.")
    extra = {n: p for n, p in torch.items() if n not in registry}
    write_lock(HERE / "torch-cuda.lock", extra, purpose="Beside torch's registry wheel.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
