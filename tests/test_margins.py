"""A margin names what is asked and has the form of it, or nothing is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalharness.cli.main import main
from evalharness.margins import SUITE_OF_NLL, SUITE_OF_SPEED, margin_names, margin_problems
from evalharness.noninferiority import Asked, plan_facts
from evalharness.registry import SUITES
from evalharness.runs import load_run
from tests.report.plant import BFCL, NLL, Plant, SuiteSpec, plant_run

NATS = {"nats_per_token": 0.01, "tail_nats": 0.5, "tail_share": 0.01}
ENTRIES = {
    "bfcl": {"suite": "bfcl", "modes": ["tools"]},
    "words": {"suite": "gsm8k", "modes": ["chat"]},
    "nll-short": {"suite": "nll", "modes": ["decode"]},
    "nll-long": {"suite": "nll", "modes": ["decode", "prefill"]},
    "speed": {"suite": "speed", "modes": ["stream"]},
}
KNOWN = {suite.name: {"suite": suite.name, "modes": suite.modes} for suite in SUITES}
FREEZABLE: dict[str, Any] = {
    "bfcl": 0.1, "bfcl.tools": 0.1, "gsm8k": 0.1, "gsm8k.chat": 0.1, "words": 0.1,
    "schema": 0.1, "schema.prompt": 0.1, "nll": NATS, "nll.decode": NATS, "nll-short": NATS,
    "nll-long.prefill": NATS,
}  # fmt: skip
REFUSED = [
    ("nll.decode", 0.1, "scored by log-probabilities (nll-short, nll-long); expected a map"),
    ("nll-long.prefill", 0.1, "expected a mapping {nats_per_token, tail_nats, tail_share}"),
    ("words", NATS, "words: scored right or wrong (words); expected one number"),
    ("gsm8k", NATS, "found three margins of log-probabilities"),
    ("bfcl.", 0.1, "bfcl has no mode '' here; it has tools"),
    ("nll-short.prefill", NATS, "nll-short has no mode 'prefill' here; it has decode"),
    ("nll.prefil", NATS, "nll has no mode 'prefil' here; it has decode, prefill"),
    ("schema", NATS, "scored right or wrong (schema)"),
    ("nll_short", NATS, "no suite 'nll_short'; expected one of bfcl, gsm8k,"),
    (".chat", 0.1, "no suite ''"),
    ("speed", 0.1, "speed is measured, not gated"),
    ("bfcl", 1e-17, "bfcl: expected a number of at least 1e-09 and below 1"),
    ("nll", {**NATS, "tail_share": 1}, "nll.tail_share: expected a number of at least 1e-09 and"),
    ("nll", {**NATS, "tail_nats": 1e-12}, "nll.tail_nats: expected a number of at least 1e-09, f"),
]


def test_the_kinds_are_the_registrys() -> None:
    kinds = {suite.name: suite.kind for suite in SUITES}
    assert {name for name, kind in kinds.items() if kind == "nll"} == {SUITE_OF_NLL}
    assert {name for name, kind in kinds.items() if kind == "speed"} == {SUITE_OF_SPEED}


def test_every_name_of_a_mode_that_is_asked_is_good() -> None:
    assert list(margin_problems(FREEZABLE, ENTRIES, known=KNOWN)) == []


@pytest.mark.parametrize(("name", "value", "said"), REFUSED)
def test_a_margin_that_could_gate_nothing_is_told(name: str, value: Any, said: str) -> None:
    (problem,) = margin_problems({name: value}, ENTRIES, known=KNOWN)
    assert said in problem


def test_no_margin_that_may_be_frozen_is_dropped_by_the_judge(tmp_path: Path) -> None:
    suites = [
        BFCL,
        SuiteSpec("words", "chat", 80, "gsm8k", "strict/1"),
        SuiteSpec("nll-short", "decode", 80, "nll", "raw/1"),
    ]
    reached = {
        name: value
        for name, value in FREEZABLE.items()
        if any(name in margin_names(one.name, one.mode, one.suite) for one in suites)
    }
    assert len(reached) == 8
    for number, (name, value) in enumerate(reached.items()):
        plant = Plant(
            suites=suites, factors={"hc": ("off", "on")}, concurrency=(1,), margins={name: value}
        )
        facts = plan_facts([load_run(plant_run(tmp_path / str(number), plant))], Asked(), ())
        assert len(facts.margins) + len(facts.nll_margins) == 1, name


STORED: list[dict[str, Any]] = [
    {"bfcl": 0.1, "nll.decode": 0.002},
    {"bfcl": 0.1, "nll": 0.01},
    {"bfcl": NATS, "nll.decode": NATS},
    {"bfcl.": 0.1, "nll.decode": NATS},
    {"bfcl": 1e-17},
]


@pytest.mark.parametrize("margins", STORED)
@pytest.mark.parametrize("more", [[], ["--new-cases"]])
def test_a_stored_plan_with_a_margin_that_gates_nothing_is_not_judged(
    tmp_path: Path, margins: dict[str, Any], more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    plant = Plant(
        suites=(BFCL, NLL), factors={"hc": ("off", "on")}, concurrency=(4,), margins=margins
    )
    run = plant_run(tmp_path / "run", plant)
    assert main(["noninferiority", str(run), *more]) == 2
    assert "plan.json: margins: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--margin", "nll.decode=0.1"], "expected NATS_PER_TOKEN,TAIL_NATS,TAIL_SHARE, found one"),
        (["--margin", "bfcl=0.1,0.5,0.01"], "scored right or wrong (bfcl); expected one number"),
        (["--margin", "nll.decode=0.1,0.5,2"], "nll.decode.tail_share: expected"),
        (["--margin", "bfcl=1e-17"], "bfcl: expected a number of at least 1e-09"),
        (["--alpha", "1e-17"], "--alpha 1e-17: expected a number of at least 1e-09"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--new-cases"]])
def test_an_option_that_would_drop_a_gate_is_refused(
    tmp_path: Path, options: list[str], more: list[str], said: str, capsys: Any
) -> None:
    plant = Plant(
        suites=(BFCL, NLL), factors={"hc": ("off", "on")}, concurrency=(4,),
        margins={"bfcl": 0.1, "nll.decode": NATS},
    )  # fmt: skip
    run = plant_run(tmp_path / "run", plant)
    assert main(["noninferiority", str(run), *more, *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("alpha", [1e-9, 1e-17])
def test_the_smallest_alpha_can_be_judged_and_a_smaller_one_is_refused(
    tmp_path: Path, alpha: float, capsys: pytest.CaptureFixture[str]
) -> None:
    plant = Plant(
        suites=(BFCL, NLL), factors={"hc": ("off", "on")}, concurrency=(4,), alpha=alpha,
        margins={"bfcl": 1e-9, "nll.decode": dict.fromkeys(NATS, 1e-9)},
    )  # fmt: skip
    code = main(["noninferiority", str(plant_run(tmp_path / "run", plant))])
    assert code == (10 if alpha == 1e-9 else 2), capsys.readouterr().err
