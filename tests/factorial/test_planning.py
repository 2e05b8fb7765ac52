"""The plan is frozen, compared and explained; prompts must be the same in every arm."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from evalharness.arms import launch_order, parse_arms
from evalharness.errors import PlanError
from evalharness.factorial.cells import build_requests, planned_cells
from evalharness.factorial.planning import (
    Asked,
    build_plan,
    default_concurrency,
    differences,
    freeze,
)
from evalharness.factorial.prompts import PromptBook, PromptFacts
from evalharness.manifest import load_cases, load_manifest
from evalharness.seeds import request_seed
from evalharness.types import CellKey

ROOT = Path(__file__).parents[2]
ARMS = """\
model: {{path: /m, served_name: demo}}
factors: {{hc: {{off: {{}}, on: {{args: [--x]}}}}}}
control: {{hc: off}}
plan: {{alpha: 0.025, margins: {margins}, gate_concurrency: {gate}, scorers: {scorers}}}
"""


NATS = "{nats_per_token: 0.002, tail_nats: 0.5, tail_share: 0.001}"


def plan_of(
    margins: str = "{schema: 0.1}", gate: str = "[1, 4]", scorers: str = "{}", seed: int = 7
) -> dict[str, object]:
    text = ARMS.format(margins=margins, gate=gate, scorers=scorers)
    file = parse_arms(text.encode(), "a.yaml")
    names = [arm.name for arm in file.arms]
    launches = launch_order(names, aa=True, order="randomized", seed=seed, replays=1)
    manifest = load_manifest(ROOT / "manifests/smoke.json")
    plan = build_plan(file, manifest, launches, Asked((1, 4), seed, {"request_timeout_s": 5}))
    for arm in plan["arms"]:
        arm["digest"] = "1" * 64
    return plan


def test_the_plan_has_its_format() -> None:
    schema = json.loads((ROOT / "evalharness/formats/plan.schema.json").read_text())
    jsonschema.validate(plan_of(), schema, jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"margins": "{shcema: 0.1}"}, "plan.margins: no suite 'shcema'"),
        ({"margins": "{schema.tools: 0.1}"}, "plan.margins: schema has no mode 'tools'"),
        ({"margins": "{schema.: 0.1}"}, "plan.margins: schema has no mode '' here; it has prompt"),
        ({"margins": "{bfcl.chat: 0.1}"}, "plan.margins: bfcl has no mode 'chat'"),
        ({"margins": f"{{schema: {NATS}}}"}, "plan.margins: schema: scored right or wrong"),
        (
            {"margins": "{nll.decode: 0.1}"},
            "scored by log-probabilities (nll); expected a mapping",
        ),
        ({"seed": 10**20}, "--seed 100000000000000000000: expected at most 1e+15"),
        ({"scorers": "{schema: other/9}"}, "plan.scorers: schema has no 'other/9'"),
        ({"scorers": "{nosuch: strict/1}"}, "plan.scorers: no suite 'nosuch'"),
        ({"gate": "[1, 8]"}, "plan.gate_concurrency asks for 8, the run has --concurrency 1, 4"),
    ],
)
def test_a_plan_that_cannot_be_kept_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan_of(**change)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("args", "refused"),
    [
        ("[]", True),
        ("[--logits-processors, other:Class]", True),
        ("[--logits-processors, 'evalharness.nll.processor:ForcedTokens']", False),
        ("[--logits-processors, other:Class, 'evalharness.nll.processor:ForcedTokens']", False),
        ("['--logits-processors=evalharness.nll.processor:ForcedTokens']", False),
    ],
)
def test_forced_decode_needs_its_processor_in_every_server(args: str, refused: bool) -> None:
    text = f"""\
model: {{path: /m, served_name: demo}}
server: {{args: {args}}}
factors: {{hc: {{off: {{}}, on: {{args: [--x]}}}}}}
control: {{hc: off}}
"""
    file = parse_arms(text.encode(), "a.yaml")
    launches = launch_order(["control", "hc"], aa=False, order="randomized", seed=7, replays=1)
    manifest = load_manifest(ROOT / "manifests/nll-demo.json")
    if not refused:
        assert build_plan(file, manifest, launches, Asked((1,), 7, {}))["arms"]
        return
    with pytest.raises(PlanError) as caught:
        build_plan(file, manifest, launches, Asked((1,), 7, {}))
    said = str(caught.value)
    assert "mode decode" in said and "not found in arm control, hc" in said
    assert "--logits-processors evalharness.nll.processor:ForcedTokens" in said


def test_a_margin_of_a_suite_that_this_manifest_lacks_is_no_mistake() -> None:
    assert plan_of(margins="{bfcl: 0.1, schema: 0.1}")["margins"] == {"bfcl": 0.1, "schema": 0.1}


def test_default_concurrency_is_the_gates() -> None:
    file = parse_arms(ARMS.format(margins="{}", gate="[16, 2]", scorers="{}").encode(), "a.yaml")
    assert default_concurrency(file) == (2, 16)


def test_freezing_twice_keeps_the_first_and_names_differences(tmp_path: Path) -> None:
    first, sha256 = freeze(tmp_path, plan_of())
    later = {**plan_of(), "created_utc": "2030-01-01T00:00:00Z"}
    assert freeze(tmp_path, later) == (first, sha256)
    other = copy.deepcopy(later)
    other["arms"][1]["argv"].append("--y")  # type: ignore[index]
    other["seed"] = 8
    with pytest.raises(PlanError) as caught:
        freeze(tmp_path, other)
    assert "arms[hc].argv: the run has ['--x'], asked now: ['--x', '--y']" in str(caught.value)
    assert "seed: the run has 7, asked now: 8" in str(caught.value)


def test_responses_without_a_plan_are_refused(tmp_path: Path) -> None:
    (tmp_path / "responses").mkdir()
    with pytest.raises(PlanError, match=r"has responses but no plan\.json"):
        freeze(tmp_path, plan_of())


def test_differences_of_equal_plans_are_none() -> None:
    assert list(differences(plan_of(), plan_of())) == []


def test_requests_are_equal_across_arms_and_widths_and_differ_across_replays() -> None:
    manifest = load_manifest(ROOT / "manifests/smoke.json")
    cases = load_cases(manifest)
    entry = manifest.entries["gsm8k"]

    def bodies(arm: str, width: int, replicate: int) -> list[str]:
        key = CellKey(arm, "gsm8k", "chat", width, replicate)
        requests = build_requests(entry, cases["gsm8k"], key, model="demo", seed=7)
        return [request.digest for request in requests]

    assert bodies("control", 1, 0) == bodies("hc", 16, 0)
    assert set(bodies("control", 1, 0)).isdisjoint(bodies("control", 1, 1))


def test_seeds_depend_on_everything_but_the_arm() -> None:
    base = {"suite": "s", "case_id": "c", "replicate": 0}
    seeds = {
        request_seed(7, **base),  # type: ignore[arg-type]
        request_seed(8, **base),  # type: ignore[arg-type]
        request_seed(7, **{**base, "suite": "t"}),  # type: ignore[arg-type]
        request_seed(7, **{**base, "case_id": "d"}),  # type: ignore[arg-type]
        request_seed(7, **{**base, "replicate": 1}),  # type: ignore[arg-type]
        request_seed(7, **base, salt="x"),  # type: ignore[arg-type]
    }
    assert len(seeds) == 6
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_cells_come_in_a_fixed_order() -> None:
    manifest = load_manifest(ROOT / "manifests/smoke.json")
    launch = launch_order(["control"], aa=False, order="randomized", seed=1, replays=2)[0]
    stems = [cell.key.filename for cell in planned_cells(manifest, launch, (1, 4))]
    assert stems == [
        f"{suite}-c{width}-r{replicate}"
        for replicate in (0, 1)
        for suite in ("schema.prompt", "gsm8k.chat")
        for width in (1, 4)
    ]


def test_prompts_that_differ_between_arms_are_told() -> None:
    book = PromptBook()
    key = CellKey("control", "s", "m", 1, 0)
    other = CellKey("b", "s", "m", 4, 0)
    assert book.compare(key, {"c": PromptFacts(10, "a"), "d": PromptFacts(None, None)}) == ""
    assert book.compare(other, {"c": PromptFacts(10, None), "d": PromptFacts(5, "x")}) == ""
    assert "case c: the prompt has 11 tokens here" in book.compare(
        other, {"c": PromptFacts(11, "a")}
    )
    assert "other token ids" in book.compare(other, {"c": PromptFacts(10, "b")})
    elsewhere = CellKey("b", "other", "m", 4, 0)
    assert book.compare(elsewhere, {"c": PromptFacts(99, "z")}) == ""
