"""The command line: help with an example everywhere, light imports, errors without tracebacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evalharness.cli.main import COMMANDS, build_parser, main

ROOT = Path(__file__).parents[1]
HEAVY = ("aiohttp", "torch", "vllm", "scipy", "pandas", "matplotlib", "jinja2", "ruamel")


def python(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, *args],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_shows_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "example" in text
    assert f"evalharness {name}" in text


def test_parsing_imports_nothing_heavy() -> None:
    code = (
        "import sys; from evalharness.cli.main import build_parser; build_parser(); "
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert python("-c", code).stdout.strip() == "[]"


def test_rescoring_never_imports_aiohttp() -> None:
    code = (
        "import sys; sys.modules['aiohttp'] = None\n"
        "import evalharness.scoring, evalharness.runs, evalharness.report, evalharness.store\n"
        "from evalharness.cli.main import main\n"
        "sys.exit(main(['rescore', '/no/such/run']))"
    )
    done = python("-c", code)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "/no/such/run" in done.stderr


def test_wrong_files_exit_2_with_place_and_remedy(tmp_path: Path) -> None:
    arms = tmp_path / "a.yaml"
    arms.write_text("factors: {f: {a: {}, b: {argz: []}}}\ncontrol: {f: a}\n")
    done = python("-m", "evalharness", "arms", str(arms), "--dry-run")
    assert done.returncode == 2
    assert done.stderr == (
        "evalharness: a.yaml line 1: unknown key \"argz\" in factors.f.b (did you mean 'args'?); "
        "expected one of args, endpoint, env, model, python\n"
    )


def test_hostile_text_cannot_steer_the_terminal(tmp_path: Path) -> None:
    arms = tmp_path / "a.yaml"
    arms.write_text('factors: {f: {a: {}, b: {"\\e]0;owned\\a": 1}}}\ncontrol: {f: a}\n')
    done = python("-m", "evalharness", "arms", str(arms))
    assert done.returncode == 2
    assert "\x1b" not in done.stderr + done.stdout
    assert "owned" in done.stderr


def test_arms_prints_what_would_be_started(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    arms = tmp_path / "a.yaml"
    arms.write_text(
        f"model: {{path: {model}, served_name: demo}}\n"
        "factors: {f: {a: {args: [--x, '1']}, b: {env: {Y: 'two words'}}}}\ncontrol: {f: a}\n"
    )
    done = python("-m", "evalharness", "arms", str(arms), "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [arm["name"] for arm in found["arms"]] == ["control", "f"]
    assert sorted(launch["arm"] for launch in found["launches"]) == ["aa", "control", "f"]
    text = python("-m", "evalharness", "arms", str(arms)).stdout
    assert "--x 1" in text
    assert "VLLM_PLUGINS='' Y='two words'" in text


@pytest.mark.parametrize("levels", ["0", "-1", "x", "", "1,,2", "1.5", "99999999"])
def test_wrong_concurrency_is_a_usage_error(
    levels: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["factorial", "--arms", "a", "--manifest", "m", "--out", "o", "--concurrency", levels]
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(argv)
    assert ended.value.code == 2
    assert "expected whole numbers" in capsys.readouterr().err


def test_doctor_names_what_is_missing(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexit 3\n")
    fake.chmod(0o755)
    done = python("-m", "evalharness", "doctor", "--python", str(fake))
    assert done.returncode == 2
    assert "MISS vllm" in done.stdout
    assert "->" in done.stdout


def test_watch_without_a_run(tmp_path: Path) -> None:
    done = python("-m", "evalharness", "watch", str(tmp_path), "--once")
    assert done.returncode == 2
    assert "plan.json" in done.stderr
