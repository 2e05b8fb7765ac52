"""What a run says before it starts, and that one in which nothing gates never starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from evalharness.cli.announcing import announcement, refuse_without_gate
from evalharness.errors import PlanError
from evalharness.manifest import entry_cases, load_manifest
from tests.e2e.fake_run import FakeFactorial

MANIFESTS = Path(__file__).parents[2] / "manifests"
NATS = {"nats_per_token": 0.01, "tail_nats": 0.5, "tail_share": 0.01}


def said(manifest: str, margins: dict[str, Any] | None, alpha: float = 0.025) -> list[str]:
    loaded = load_manifest(MANIFESTS / f"{manifest}.json")
    plan = None if margins is None else {"margins": margins}
    tokens = [entry for entry in loaded.entries.values() if entry.suite == "nll"]
    cases = {entry.name: entry_cases(entry)[0] for entry in tokens}
    return list(announcement(plan, loaded, cases, alpha=alpha))


def line(lines: list[str], name: str) -> str:
    (found,) = [one for one in lines if one.startswith(f"{name}: ")]
    return found


@pytest.mark.parametrize("name", ["gsm8k", "gsm8k.chat"])
def test_a_margin_is_found_by_every_name_it_may_have(name: str) -> None:
    lines = said("gsm8k16", {name: 0.25})
    assert "; the plan asks for 25" in line(lines, "gsm8k")
    assert "so few" not in line(lines, "gsm8k")
    assert "cannot be admitted with so few" in line(said("gsm8k16", {name: 0.2}), "gsm8k")


def test_a_margin_without_a_suite_and_a_suite_without_a_margin_are_told() -> None:
    lines = said("smoke", {"gsm8k": 0.1, "bfcl": 0.1, "nll.decode": NATS})
    assert "no margin, it will be described only" in line(lines, "schema")
    for idle in ("bfcl", "nll.decode"):
        assert line(lines, idle).endswith("a margin, but no suite of this manifest")
    assert "margin, it" not in "\n".join(said("smoke", None)), "an exploratory run is not told"


def test_modes_with_different_margins_are_told_apart() -> None:
    lines = said("nll-demo", {"nll.decode": NATS})
    assert "(decode)" in line(lines, "nll")
    assert "no margin (prefill)" in line(lines, "nll")


def test_log_probabilities_have_their_own_rules_and_speed_none() -> None:
    lines = said("demo-small", {"nll": NATS, "bfcl": 0.7})
    told = line(lines, "nll")
    assert "points" not in told
    assert "cannot be admitted with so few: it needs 60 for the mean" in told
    assert not any(one.startswith("speed: ") for one in lines)
    tail = {**NATS, "tail_share": 0.0005}
    assert "for a tail share of 0.0005" in line(said("nll-demo", {"nll": tail}), "nll")
    assert "so few" not in line(said("nll-demo", {"nll": NATS}), "nll")


def test_likely_is_never_less_than_the_least() -> None:
    told = line(said("demo-small", None), "bfcl")
    assert "61.2 points at best (no case differs), about 61.2 with" in told


@pytest.mark.parametrize("margins", [{"bfcl": 0.1}, {"bfcl": 0.1, "nll.decode": NATS}])
def test_a_plan_whose_margins_all_miss_is_refused(margins: dict[str, Any]) -> None:
    smoke = load_manifest(MANIFESTS / "smoke.json")
    with pytest.raises(PlanError) as caught:
        refuse_without_gate({"margins": margins}, smoke)
    assert "nothing would be decided; expected a margin for a suite of manifest smoke" in str(
        caught.value
    )
    assert "(schema, gsm8k), found only bfcl" in str(caught.value)


def test_what_describes_measures_or_gates_somewhere_is_not_refused() -> None:
    smoke, speed = (load_manifest(MANIFESTS / f"{name}.json") for name in ("smoke", "speed"))
    plans: list[dict[str, Any] | None] = [None, {}, {"margins": {}}]
    for plan in (*plans, {"margins": {"bfcl": 0.1, "schema.prompt": 0.1}}):
        refuse_without_gate(plan, smoke)
    refuse_without_gate({"margins": {"bfcl": 0.1}}, speed)


@pytest.mark.parametrize("arms", sorted((MANIFESTS / "arms").glob("flag-*.yaml")), ids=str)
def test_the_ready_flags_gate_in_every_manifest_of_suites_they_name(arms: Path) -> None:
    plan = yaml.safe_load(arms.read_text())["plan"]
    for manifest in ("api80", "smoke", "nll-demo", "gsm8k-1319", "demo", "speed"):
        refuse_without_gate(plan, load_manifest(MANIFESTS / f"{manifest}.json"))


def test_the_command_refuses_before_it_freezes_anything(tmp_path: Path) -> None:
    fake = FakeFactorial(tmp_path)
    text = fake.arms.read_text()
    fake.arms.write_text(text.replace("{schema: 0.1, gsm8k: 0.1}", "{bfcl: 0.1}"))
    code, output = fake.finish()
    assert code == 2
    assert "nothing would be decided" in output
    assert not (fake.run / "plan.json").exists()
    (fake.run / "plan.json").write_text("{}")
    code, output = fake.finish()
    assert code == 2
    assert "was started with another plan" in output, "a started run answers for its own plan"
