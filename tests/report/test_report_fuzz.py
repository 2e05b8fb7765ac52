"""Damaged run directories of every kind: an exit code and a sentence, never a traceback.

A longer run: EVALHARNESS_FUZZ=5000 pytest tests/report/test_report_fuzz.py
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalharness.cli.main import main
from tests.report.plant import Plant, SuiteSpec, plant_run, write_sums

ROUNDS = int(os.environ.get("EVALHARNESS_FUZZ", "40"))
SUITES = (
    SuiteSpec("bfcl", "tools", 6, "bfcl", "official/1"),
    SuiteSpec("nll", "decode", 4, "nll", "raw/1"),
)
MARGINS = {
    "bfcl": 0.1,
    "nll.decode": {"nats_per_token": 0.01, "tail_nats": 0.5, "tail_share": 0.01},
}
ODD: tuple[Any, ...] = (None, True, -1, 0, 1e308, "", "x", [], {}, [None], {"a": 1}, "\ud800")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small sound run."""
    plant = Plant(suites=SUITES, factors={"hc": ("off", "on")}, concurrency=(2,), margins=MARGINS)
    return plant_run(tmp_path_factory.mktemp("fuzz") / "run", plant)


def truncate(raw: bytes, dice: random.Random) -> bytes:
    return raw[: dice.randrange(len(raw) + 1)]


def flip(raw: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ (1 << dice.randrange(8))]) + raw[place + 1 :]


def repeat(raw: bytes, dice: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True)
    place = dice.randrange(len(lines))
    return b"".join([*lines[:place], lines[place], *lines[place:]])


def reshape(raw: bytes, dice: random.Random) -> bytes:
    """Replace or remove one value anywhere in one JSON document of the file."""
    lines = raw.splitlines() if raw.count(b"\n") > 1 and raw.startswith(b'{"') else [raw]
    place = dice.randrange(len(lines))
    document = json.loads(lines[place])
    spots = list(walk(document))
    parent, key = dice.choice(spots)
    if dice.random() < 0.4:
        del parent[key]
    else:
        parent[key] = dice.choice(ODD)
    lines[place] = json.dumps(document).encode()
    return b"\n".join(lines) + b"\n"


def walk(value: Any) -> Any:
    """Yield (container, key) of every value in nested JSON."""
    items: list[Any] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, inner in items:
        yield value, key
        yield from walk(inner)


DAMAGE: tuple[Callable[[bytes, random.Random], bytes], ...] = (truncate, flip, repeat, reshape)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_no_damage_gives_a_traceback(
    whole: Path, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(seed)
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    names = sorted(p for p in run.rglob("*") if p.is_file() and p.suffix in (".json", ".jsonl"))
    victim = dice.choice([*names, *[p for p in names if p.name == "plan.json"] * 3])
    how = dice.choice(DAMAGE)
    victim.write_bytes(how(victim.read_bytes(), dice))
    if dice.random() < 0.7:
        write_sums(run)
    code = main(["noninferiority", str(run), "--format", "json,md,html"])
    assert code in (2, 10, 11, 12), (victim, how)
    if code == 2:
        assert capsys.readouterr().err.startswith("evalharness: ")
