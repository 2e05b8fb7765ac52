"""Arms on nodes, and cells dealt out to shards: what the report makes of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from evalharness.noninferiority import Asked
from evalharness.report import FORMATS, report_document, write_document
from tests.report.plant import BFCL, NLL, Plant, paired, plant_run, write_sums

ROOT = Path(__file__).parents[2]
ARMS = ("hc", "moe", "hc+moe")
CASES = 32
PLANT = Plant(
    suites=(replace(BFCL, cases=CASES),),
    outcomes=paired(correct=20, wins=2, losses=3, arms=ARMS),
    margins={"bfcl": 0.2},
)
SIZES = [11, 11, 10]
SHARDS = 3


def document_of(run: Path) -> dict[str, Any]:
    write_sums(run)
    document = report_document([run], Asked())
    schema = json.loads((ROOT / "evalharness/formats/report.schema.json").read_text())
    jsonschema.validate(document, schema, jsonschema.Draft202012Validator)
    return document


def put(run: Path, places: Mapping[str, dict[str, Any]]) -> None:
    """Say that each arm's launches ran on the given node."""
    for path in run.glob("arms/*/*/server.json"):
        server = json.loads(path.read_text())
        server["node"].update(places[server["arm"]])
        path.write_text(json.dumps(server, indent=1))


def card(name: str, index: int) -> dict[str, Any]:
    return {"index": index, "uuid": f"GPU-{index}", "name": name, "memory_total_mib": 1}


def test_one_node_is_no_news(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", PLANT)
    document = document_of(run)
    assert [row["node"] for row in document["placement"]["nodes"]] == ["host"]
    assert not [text for text in document["cannot_say"] if "confounded" in text]
    paths = write_document(document, run / "report", FORMATS)
    assert not any("Placement" in path.read_text() for path in paths[:2])


def test_an_arm_that_never_shared_a_node_with_the_control_is_named_first(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", PLANT)
    here = {"name": "n1", "gpus": [card("H200", 0), card("H100", 1)], "gpu_ids": ["0"]}
    there = {"name": "n2", "gpus": [card("H100", 0)], "gpu_ids": ["GPU-0"], "driver": "570"}
    put(run, {"control": here, "aa": here, "hc": here, "moe": there, "hc+moe": there})
    document = document_of(run)
    placement = document["placement"]
    assert [(row["node"], row["gpus"]) for row in placement["nodes"]] == [
        ("n1", ["H200"]),
        ("n2", ["H100"]),
    ]
    overlap = {
        row["arm"]: (row["overlap"], row["same_node_share"]) for row in placement["contrasts"]
    }
    assert overlap == {"aa": (1, 1), "hc": (1, 1), "moe": (0, 0), "hc+moe": (0, 0)}
    said = document["cannot_say"][:2]
    assert [text.split()[1] for text in said] == ["moe", "hc+moe"]
    assert all("arm and node are confounded" in text for text in said)
    assert all("differ in GPU or driver" in text for text in said)
    html, markdown, _ = write_document(document, run / "report", FORMATS)
    assert '<section id="placement">' in html.read_text()
    assert "<td>n2</td><td>host</td><td>H100</td><td>570</td>" in html.read_text()
    assert "| moe | n2 |" in markdown.read_text()
    assert "arm and node are confounded" in markdown.read_text()


@pytest.mark.parametrize(("swapped", "warned"), [(1, True), (0, False)])
def test_balance_over_nodes_is_measured_in_responses(
    tmp_path: Path, swapped: int, warned: bool
) -> None:
    """Control and arm ran three shards on three nodes: alike, or the arm one of them elsewhere."""
    run = plant_run(tmp_path / "run", PLANT)
    split(run)
    for path in run.glob("arms/*/*/server.json"):
        _launch_per_shard(run, path, elsewhere=swapped if "hc" in path.parts else 0)
    placement = document_of(run)["placement"]
    row = next(row for row in placement["contrasts"] if row["arm"] == "hc")
    assert row["overlap"] == pytest.approx(1 - swapped * SIZES[-1] / CASES)
    assert row["same_node_share"] == row["overlap"]
    said = [text for text in document_of(run)["cannot_say"] if "partly confounded" in text]
    assert bool(said) == warned


def _launch_per_shard(run: Path, path: Path, *, elsewhere: int) -> None:
    """Give each shard of an arm a launch and a node of its own: n1, n2, n3; or n9 at the end."""
    server = json.loads(path.read_text())
    arm, first = server["arm"], server["launch"]
    for shard in range(1, SHARDS + 1):
        launch = 10 * shard + first
        name = "n9" if elsewhere and shard == SHARDS else f"n{shard}"
        facts = {**server, "launch": launch, "node": {**server["node"], "name": name}}
        folder = run / "arms" / arm / f"{launch:03d}"
        folder.mkdir()
        (folder / "server.json").write_text(json.dumps(facts))
        for record in run.glob(f"responses/{arm}/{first:03d}/*-s{shard}of{SHARDS}.cell.json"):
            record.write_text(json.dumps({**json.loads(record.read_text()), "launch": launch}))
    path.unlink()


def split(run: Path) -> None:
    """Deal every cell of a planted run out to three shards, as its launches would have."""
    for record in list(run.glob("responses/*/*/*.cell.json")):
        facts = json.loads(record.read_text())
        stem = record.name.removesuffix(".cell.json")
        for number in range(1, SHARDS + 1):
            for path in run.glob(f"*/**/{record.parts[-3]}/{record.parts[-2]}/{stem}.jsonl"):
                lines = path.read_bytes().splitlines(keepends=True)[number - 1 :: SHARDS]
                path.with_name(f"{stem}-s{number}of{SHARDS}.jsonl").write_bytes(b"".join(lines))
            shard = record.with_name(f"{stem}-s{number}of{SHARDS}.jsonl").read_bytes()
            rows = shard.count(b"\n")
            part = {"shard": [number, SHARDS], "rows": rows, "expected_rows": rows}
            digest = hashlib.sha256(shard).hexdigest()
            record.with_name(f"{stem}-s{number}of{SHARDS}.cell.json").write_text(
                json.dumps({**facts, **part, "responses_sha256": digest})
            )
        for path in run.glob(f"*/**/{record.parts[-3]}/{record.parts[-2]}/{stem}.*"):
            path.unlink()
    plan = json.loads((run / "plan.json").read_text())
    sizes = dict.fromkeys(plan["suites"], SIZES)
    plan["shards"] = {"asked": SHARDS, "rule": "in turn", "cases": sizes}
    (run / "plan.json").write_text(json.dumps(plan))


def test_shards_are_judged_as_the_cells_they_make_up(tmp_path: Path) -> None:
    plant = replace(PLANT, suites=(*PLANT.suites, replace(NLL, cases=CASES)))
    whole = document_of(plant_run(tmp_path / "whole", plant))
    run = plant_run(tmp_path / "shards", plant)
    split(run)
    dealt = document_of(run)
    for section in ("headline", "arms", "counts", "cells", "aa", "pooled", "factorial", "nll"):
        assert dealt[section] == whole[section], section
    assert len(dealt["concurrency"]) == SHARDS * len(whole["concurrency"])
    for one, other in zip(dealt["flips"], whole["flips"], strict=True):
        for side in ("control", "arm"):
            assert one[f"{side}_answer"] == other[f"{side}_answer"]
            lines = (run / one[f"{side}_file"]).read_text().splitlines()
            assert any(json.loads(line)["case_id"] == one["case_id"] for line in lines)
    ours, theirs = dealt["first_difference"], whole["first_difference"]
    assert ours == theirs


def test_a_missing_shard_makes_its_cases_unobserved_and_is_named(tmp_path: Path) -> None:
    run = plant_run(tmp_path / "run", PLANT)
    split(run)
    for path in run.glob("responses/hc/*/bfcl.tools-c1-r0-s2of3.*"):
        path.unlink()
    document = document_of(run)
    missing = [row for row in document["stopped"] if row["arm"] == "hc"]
    assert [(row["reason"], row["expected_rows"]) for row in missing] == [
        ("the run has no record of shard 2 of 3", SIZES[1])
    ]
    lost = [row for row in document["unobserved"] if row["arm"] == "hc"]
    assert [len(row["case_ids"]) for row in lost] == [SIZES[1]]
    assert "shard 2 of 3: never complete" in lost[0]["reason"]
    counts = {
        (row["arm"], row["concurrency"]): row["unobserved"]
        for row in document["counts"]
        if row["suite"] == "bfcl"
    }
    assert counts["hc", 1] == SIZES[1]
    assert sum(counts.values()) == SIZES[1]
