"""Imports go one way. Each unit (module or package under `evalharness`) may import these."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BASE = {"types", "errors", "text", "redact", "lenient_json", "__version__"}
SUITE = {*BASE, "suite", "chat", "strict_json", "sse"}
ALLOWED: dict[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "text": {"types"},
    "redact": {"types"},
    "sse": {"types"},
    "strict_json": {"types"},
    "child": set(),
    "seeds": {"types"},
    "lenient_json": set(),
    "reply": {"lenient_json", "sse", "types"},
    "stats": set(),
    "suite": {"types"},
    "chat": {*BASE, "sse"},
    "bfcl": SUITE,
    "schema": {*SUITE, "child"},
    "gsm8k": SUITE,
    # Its capture also asks a server; its deltas are a file and use the statistics.
    "nll": {*SUITE, "seeds", "client", "drive", "stats", "store"},
    "speed": {*SUITE, "stats", "seeds"},
    "trace": {*BASE, "arms", "checked_json", "client", "server", "sse", "store"},
    "registry": {"bfcl", "schema", "gsm8k", "nll", "speed", "suite", "errors"},
    "arms": BASE,
    "store": BASE,
    "stored_rows": {*BASE, "store"},
    "client": {*BASE, "reply", "sse"},
    "drive": BASE,
    "server": {*BASE, "store"},
    "data": BASE,
    "manifest": {*BASE, "data", "registry", "strict_json", "suite"},
    "manifest_build": {*BASE, "data", "manifest", "registry", "suite"},
    "vectors": {*BASE, "registry", "store", "strict_json", "suite"},
    "scoring": {*BASE, "checked_json", "manifest", "registry", "scoring_cell", "scoring_worker"},
    "scoring_cell": {*BASE, "manifest", "registry", "scoring_lines", "store", "suite"},
    "scoring_lines": {*BASE, "store"},
    "scoring_worker": {*BASE, "child", "scoring_cell"},
    "verdicts": {*BASE, "stats"},
    "plan_table": {"stats", "verdicts"},
    "checked_json": BASE,
    "margins": {"text"},
    "stored_cell": {*BASE, "stored_rows"},
    "vouched": {*BASE, "margins", "store", "stored_cell"},
    "runs": {*BASE, "checked_json", "margins", "stored_cell", "stored_rows", "vouched"},
    "pairing": {*BASE, "runs", "stored_rows", "verdicts"},
    "route_coverage": {*BASE, "runs", "verdicts"},
    "noninferiority": {
        *BASE, "arms", "margins", "pairing", "route_coverage", "runs", "verdicts", "speed",
    },
    "growing": {*BASE, "noninferiority", "pairing", "runs", "verdicts"},
    "report": {
        *BASE, "chat", "nll", "speed", "stats", "trace",
        "noninferiority", "pairing", "runs", "store", "stored_rows", "verdicts",
    },
    "factorial": {
        *BASE, "arms", "checked_json", "client", "drive", "manifest", "margins", "registry",
        "seeds", "server", "sse", "store",
    },
    "progress": {*BASE, "factorial"},
    "cluster": {
        *BASE, "arms", "factorial", "manifest", "noninferiority", "progress", "report", "scoring",
        "scoring_cell", "scoring_worker", "server", "store",
    },
    "watching": {*BASE, "checked_json"},
    "doctoring": {*BASE, "server"},
}  # fmt: skip
# Everything may be wired together here, and nothing imports these.
TOP = {"cli", "__main__", "__init__"}


def imports_of(path: Path) -> Iterator[str]:
    """Yield every module a file imports, imports inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module in {"evalharness", "kernels_sm70"}:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield node.module


def unit_of(path: Path) -> str:
    """Return the unit a source file belongs to."""
    inner = path.relative_to(ROOT / "evalharness").parts
    return Path(inner[0]).stem


SOURCES = sorted((ROOT / "evalharness").rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_unit_imports_only_what_it_may(path: Path) -> None:
    unit = unit_of(path)
    for name in imports_of(path):
        assert not name.startswith("kernels_sm70"), f"{path}: the two packages never meet"
        if not name.startswith("evalharness.") or unit in TOP:
            continue
        target = name.split(".")[1]
        if target == unit:
            continue
        assert unit in ALLOWED, f"{path}: new unit {unit}; say in ALLOWED what it may import"
        assert target in ALLOWED[unit], f"{path}: {unit} may not import {target}"


def test_the_table_has_no_cycle() -> None:
    done: set[str] = set()
    while left := set(ALLOWED) - done:
        free = {unit for unit in left if ALLOWED[unit] - {"__version__"} <= done}
        assert free, f"cycle among {sorted(left)}"
        done |= free


def test_the_kernels_never_import_the_harness() -> None:
    for path in (ROOT / "kernels_sm70").rglob("*.py"):
        for name in imports_of(path):
            assert name.split(".")[0] != "evalharness", f"{path} imports {name}"


def test_only_the_processor_imports_vllm() -> None:
    importers = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if any(name.split(".")[0] == "vllm" for name in imports_of(path))
    }
    assert importers == {"evalharness/nll/processor.py"}
    for path in SOURCES:
        assert "evalharness.nll.processor" not in set(imports_of(path)), path


def test_only_the_cluster_imports_ray() -> None:
    importers = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if any(name.split(".")[0] == "ray" for name in imports_of(path))
    }
    assert importers == {"evalharness/cluster/datasets.py", "evalharness/cluster/session.py"}
    for path in SOURCES:
        if unit_of(path) not in {"cluster", "cli"}:
            assert not any("cluster" in name.split(".") for name in imports_of(path)), path


OFFLINE = (
    "evalharness.scoring",
    "evalharness.cli.rescore",
    "evalharness.cli.score",
    "evalharness.report",
)


@pytest.mark.parametrize("module", OFFLINE)
def test_what_works_offline_loads_no_client(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "bad = {'aiohttp', 'vllm', 'torch', 'ray', 'datasets'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
