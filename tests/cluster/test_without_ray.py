"""Nothing of Ray is imported without the option, and its absence is an error with a remedy."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from evalharness.cli.executors import resource
from tests.e2e.fake_run import ROOT, FakeFactorial

# Any import of Ray fails, as where the extra is not installed; what was tried is printed.
BLOCKED = """\
import importlib.util, sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ray":
            tried.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
tried = []
sys.meta_path.insert(0, Block())
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "ray" else find(name, *rest)
from evalharness.cli.main import main
code = main(sys.argv[1:])
print("tried:", tried, "loaded:", [name for name in sys.modules if name.partition(".")[0] == "ray"])
sys.exit(code)
"""


def without_ray(arguments: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_local_run_rescoring_and_judging_import_nothing_of_ray(tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path, concurrency="1", cases=1, aa=False)
    code, output = without_ray(work.command()[3:])
    assert code == 0, output
    assert "tried: [] loaded: []" in output
    for command in (["rescore"], ["noninferiority"], ["watch"]):
        code, output = without_ray([*command, str(work.run)])
        assert code in (0, 10), output
        assert "tried: [] loaded: []" in output, command


@pytest.mark.parametrize("command", ["factorial", "rescore", "noninferiority"])
def test_ray_asked_for_and_not_installed(command: str, tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path, concurrency="1", cases=1)
    arguments = {
        "factorial": work.command()[3:],
        "rescore": ["rescore", str(work.run)],
        "noninferiority": ["noninferiority", "--each", str(work.run)],
    }[command]
    code, output = without_ray([*arguments, "--executor", "ray"])
    assert code == 2, output
    assert "pip install '.[ray]'" in output
    assert "Traceback" not in output


def test_options_that_need_ray_are_refused_without_it(tmp_path: Path) -> None:
    work = FakeFactorial(tmp_path, concurrency="1", cases=1)
    for more in (("--ray-address", "auto"), ("--resources", "GPU=4")):
        code, output = work.finish(*more)
        assert code == 2
        assert "go with --executor ray" in output
    code, output = work.finish("--executor", "ray", "--resources", "GPU=none")
    assert code == 2
    assert "expected NAME=N with N above 0" in output


def test_a_launch_asks_for_whole_gpus_and_any_part_of_a_cpu() -> None:
    for text in ("GPU=1.5", "GPU=0.5", "GPU=0.00001", "GPU=nan", "GPU=0"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected"):
            resource(text)
    assert resource("GPU=4") == ("GPU", 4.0)
    assert resource("CPU=0.5") == ("CPU", 0.5)
