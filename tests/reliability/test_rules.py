"""What the code must never do, and ids, kernels and servers that must stay where they belong."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evalharness.arms import parse_arms
from evalharness.cli.main import main
from evalharness.errors import ArmsError
from evalharness.server.server import command
from evalharness.types import Arm
from kernels_sm70.build import Artifact, build
from tests.report.plant import Plant, plant_run

ROOT = Path(__file__).parents[2]
SOURCES = [p for name in ("evalharness", "kernels_sm70") for p in (ROOT / name).rglob("*.py")]
# Modules that run what they read, and calls that run text.
BANNED_MODULES = {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib", "yaml"}
BANNED_CALLS = {"eval", "exec", "os.system", "os.popen", "torch.load", "subprocess.getoutput"}
ARMS = """\
model: {path: MODEL, served_name: demo}
factors:
  %s: {off: {args: []}, %s: {args: [--x]}}
control: {%s: off}
"""


def offences(tree: ast.AST) -> Iterator[str]:
    """Yield what a source file does that it must not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            modules = names if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"imports {m}" for m in modules if m.split(".")[0] in BANNED_MODULES)
        if isinstance(node, ast.Call):
            if ast.unparse(node.func) in BANNED_CALLS:
                yield f"calls {ast.unparse(node.func)}"
            shell = [word for word in node.keywords if word.arg == "shell"]
            yield from ("passes shell=" for word in shell if ast.unparse(word.value) != "False")


def test_no_source_runs_what_it_reads() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {what}"
        for path in SOURCES
        for what in offences(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []
    assert len(SOURCES) > 100


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from yaml import load", "eval('1')", "run('x', shell=True)", "os.system(x)"],
)
def test_the_rule_bites(text: str) -> None:
    assert list(offences(ast.parse(text)))


def test_the_linter_holds_the_same_rules() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert {"S102", "S301", "S307", "S602", "S604", "S605"} <= set(lint["select"])


def test_servers_listen_on_the_loopback_only() -> None:
    arm = Arm("a", (), ("--x",), (), "model", "demo", None, None, None, digest="0" * 64)
    argv = command(arm, 1234)
    assert argv[argv.index("--host") + 1] == "127.0.0.1"
    text = ARMS % ("hc", "on", "hc")
    for option in ("--host", "--port", "--api-key", "--uds", "--host=0.0.0.0"):
        with pytest.raises(ArmsError, match="the harness's own"):
            parse_arms(text.replace("--x", option).encode(), "a.yaml")


@pytest.mark.parametrize("name", ["'../x'", "a/b", "'.'", "'..'", "'a\\0b'", '"\\e[31m"', "a b"])
def test_names_of_factors_and_levels_never_become_paths(name: str) -> None:
    for factor, level in ((name, "on"), ("hc", name)):
        with pytest.raises(ArmsError, match=r"a\.yaml"):
            parse_arms((ARMS % (factor, level, factor)).encode(), "a.yaml")


def test_ids_of_cases_never_become_paths(tmp_path: Path) -> None:
    run = plant_run(
        tmp_path / "deep" / "run",
        Plant(factors={"hc": ("off", "on")}, case_prefix="../../../x/\x1b[31m<script>alert(1)"),
    )
    before = sorted(path for path in tmp_path.rglob("*") if not path.is_relative_to(run))
    assert main(["noninferiority", str(run), "--format", "html,md,json"]) == 0
    after = sorted(path for path in tmp_path.rglob("*") if not path.is_relative_to(run))
    assert before == after
    assert all("script" not in str(path) for path in run.rglob("*"))
    assert "<script>alert" not in (run / "report" / "index.html").read_text()


def cut(cubin: Path, _record: Path) -> None:
    cubin.write_bytes(cubin.read_bytes()[:-64])


def flip(cubin: Path, _record: Path) -> None:
    raw = bytearray(cubin.read_bytes())
    raw[len(raw) // 2] ^= 1
    cubin.write_bytes(raw)


def other_digest(_cubin: Path, record: Path) -> None:
    record.write_text(json.dumps({**json.loads(record.read_text()), "cubin_digest": "0" * 64}))


def other_source(_cubin: Path, record: Path) -> None:
    record.write_text(json.dumps({**json.loads(record.read_text()), "source_digest": "0" * 64}))


def no_record(_cubin: Path, record: Path) -> None:
    record.unlink()


def torn_record(_cubin: Path, record: Path) -> None:
    record.write_text(record.read_text()[:40])


def empty_record(_cubin: Path, record: Path) -> None:
    record.write_text("{}")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Artifact]:
    """A cache with one kernel in it."""
    cache = tmp_path_factory.mktemp("kernels")
    return cache, build("gdn_split", "sm_70", cache=cache)


@pytest.mark.parametrize(
    "damage", [cut, flip, other_digest, other_source, no_record, torn_record, empty_record]
)
def test_a_kernel_is_loaded_only_if_its_record_vouches_for_it(
    built: tuple[Path, Artifact], damage: Callable[[Path, Path], None]
) -> None:
    cache, sound = built
    (cubin,), (record,) = cache.glob("*.cubin"), cache.glob("*.json")
    damage(cubin, record)
    again = build("gdn_split", "sm_70", cache=cache)
    assert again.cubin == sound.cubin
    assert cubin.read_bytes() == sound.cubin, "the cache was mended"


def test_nothing_loads_a_kernel_but_the_build() -> None:
    loading = [p for p in SOURCES if "cuLibraryLoadData" in p.read_text()]
    assert [path.name for path in loading] == ["runtime.py"]
    assert "cuLibraryLoadData(artifact.cubin" in loading[0].read_text()
