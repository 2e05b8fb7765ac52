"""Manifests: the format, digests that do not depend on the source, every fault named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalharness import data
from evalharness.cli.main import main
from evalharness.cli.manifest import EXAMPLE
from evalharness.errors import ManifestError, StoreError
from evalharness.manifest import (
    entry_cases,
    freeze_into,
    frozen_cases,
    frozen_manifest,
    load_cases,
    load_manifest,
    parse_manifest,
)
from evalharness.manifest_build import build_manifest, manifest_text, oversized

ROOT = Path(__file__).parent.parent
MANIFESTS = sorted((ROOT / "manifests").glob("*.json"))
COUNTS = {
    "api80": {"bfcl": 64, "schema": 16},
    "gsm8k16": {"gsm8k": 16},
    "gsm8k-1319": {"gsm8k": 1319},
    "bfcl-single-turn": {"bfcl": 3491},
    "washingtonpost-125": {"schema": 125},
    "github-easy-400": {"schema": 400},
}


@pytest.fixture
def smoke() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / "manifests" / "smoke.json").read_text())
    return document


def _needs(manifest: Path) -> None:
    for entry in load_manifest(manifest).entries.values():
        if data.locate(entry.source) is None:
            pytest.skip(
                f"data of {entry.source.label} is not here: `evalharness data fetch`, or "
                "EVALHARNESS_DATA"
            )


@pytest.mark.parametrize("name", COUNTS)
def test_the_pinned_manifests_are_there(name: str) -> None:
    entries = load_manifest(ROOT / "manifests" / f"{name}.json").entries
    assert {key: len(entry.cases) for key, entry in entries.items()} == COUNTS[name]


def test_api80_has_sixteen_of_each() -> None:
    ids = load_manifest(ROOT / "manifests" / "api80.json").entries["bfcl"].case_ids
    groups = [case_id.rpartition("_")[0] for case_id in ids]
    assert {group: groups.count(group) for group in groups} == {
        "simple_python": 16,
        "parallel": 16,
        "multiple": 16,
        "irrelevance": 16,
    }


def test_gsm8k16_is_the_first_sixteen() -> None:
    ids = load_manifest(ROOT / "manifests" / "gsm8k16.json").entries["gsm8k"].case_ids
    assert list(ids) == [f"gsm8k-test-{number:04d}" for number in range(16)]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_every_case_is_the_one_that_was_frozen(path: Path) -> None:
    _needs(path)
    manifest = load_manifest(path)
    cases = load_cases(manifest)
    assert {name: tuple(case.case_id for case in found) for name, found in cases.items()} == {
        name: entry.case_ids for name, entry in manifest.entries.items()
    }


@pytest.mark.parametrize(
    "path", sorted((ROOT / "manifests" / "recipes").glob("*.json")), ids=lambda path: path.stem
)
def test_a_recipe_gives_the_committed_bytes(path: Path) -> None:
    _needs(ROOT / "manifests" / path.name)
    committed = (ROOT / "manifests" / path.name).read_text()
    assert build_manifest(path).text == committed


def test_text_round_trip(smoke: dict[str, Any]) -> None:
    text = manifest_text(smoke["name"], smoke["suites"])
    assert json.loads(text) == smoke


CHANGES: dict[str, tuple[str, Any, str]] = {
    "format": ("format", "evalharness/manifest/2", "format"),
    "unknown suite": ("suites.gsm8k.suite", "nope", "unknown suite 'nope'"),
    "unknown mode": ("suites.gsm8k.modes", ["tools"], "gsm8k/modes: found tools"),
    "unknown scorer": ("suites.gsm8k.scorer", "strict/2", "gsm8k/scorer: found strict/2"),
    "no cases": ("suites.gsm8k.cases", [], "suites/gsm8k/cases"),
    "bad digest": ("suites.gsm8k.cases.0.sha256", "ab", "suites/gsm8k/cases/0/sha256"),
    "zero tokens": ("suites.gsm8k.sampling.max_tokens", 0, "suites/gsm8k/sampling/max_tokens"),
    "wrong type": ("suites.gsm8k.template", 5, "suites/gsm8k/template"),
    "stray key": ("suites.gsm8k.tempalte", "x", "tempalte"),
    "same id twice": ("suites.gsm8k.cases.0.id", "wp-002", "found twice: wp-002"),
}


def _set(document: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for part in parents:
        document = document[int(part) if part.isdigit() else part]
    document[int(last) if last.isdigit() else last] = value


@pytest.mark.parametrize("change", CHANGES)
def test_a_faulty_manifest_names_the_place(change: str, smoke: dict[str, Any]) -> None:
    path, value, message = CHANGES[change]
    _set(smoke, path, value)
    with pytest.raises(ManifestError) as caught:
        parse_manifest(json.dumps(smoke), "m.json")
    assert str(caught.value).startswith("m.json: ")
    assert message in str(caught.value)


def test_verify_names_each_missing_and_changed_case(
    tmp_path: Path, smoke: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    _set(smoke, "suites.gsm8k.cases.0.id", "wp-999")
    _set(smoke, "suites.schema.cases.1.sha256", "0" * 64)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(smoke))
    assert main(["manifest", "verify", str(path)]) == 2
    printed = capsys.readouterr().out
    assert "gsm8k: case wp-999 is missing" in printed
    assert "schema: case sc-002 is changed" in printed
    with pytest.raises(ManifestError, match="2 cases are not what it froze"):
        load_cases(load_manifest(path))


def test_a_changed_word_in_the_data_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest covers the data, not only the id."""
    packaged = (data.PACKAGED / "word_problems.jsonl").read_text()
    (tmp_path / "word_problems.jsonl").write_text(packaged.replace("14 stops", "15 stops", 1))
    monkeypatch.setattr(data, "PACKAGED", tmp_path)
    data.rows.cache_clear()
    entry = load_manifest(ROOT / "manifests" / "smoke.json").entries["gsm8k"]
    cases, problems = entry_cases(entry)
    data.rows.cache_clear()
    assert [problem.case_id for problem in problems] == ["wp-001"]
    assert [case.case_id for case in cases] == ["wp-002"]


def test_frozen_cases_come_back_and_are_guarded(tmp_path: Path) -> None:
    manifest = load_manifest(ROOT / "manifests" / "smoke.json")
    cases = load_cases(manifest)
    freeze_into(tmp_path, manifest, cases)
    freeze_into(tmp_path, manifest, cases)  # a continued run: the same again is fine
    kept = frozen_manifest(tmp_path)
    assert kept.sha256 == manifest.sha256
    for name, entry in kept.entries.items():
        assert tuple(frozen_cases(tmp_path, entry).values()) == cases[name]
    file = tmp_path / "cases" / "gsm8k.jsonl"
    text = file.read_text()
    file.write_text(text.replace("14 stops", "15 stops"))
    with pytest.raises(ManifestError, match="wp-001 is not what"):
        frozen_cases(tmp_path, kept.entries["gsm8k"])
    with pytest.raises(StoreError, match="differs from the manifest"):
        freeze_into(tmp_path, manifest, cases)
    file.write_text(text.splitlines(keepends=True)[0])
    with pytest.raises(ManifestError, match="missing: wp-002"):
        frozen_cases(tmp_path, kept.entries["gsm8k"])


@pytest.mark.parametrize(
    "fields",
    [
        {"expected": "not JSON"},
        {"prompt": 5},
        {"case_id": []},
        {"expected": "[" * 100_000},
        {"more": ""},
    ],
)
def test_a_kept_line_that_is_no_case_is_named(tmp_path: Path, fields: dict[str, Any]) -> None:
    manifest = load_manifest(ROOT / "manifests" / "smoke.json")
    freeze_into(tmp_path, manifest, load_cases(manifest))
    file = tmp_path / "cases" / "gsm8k.jsonl"
    row = json.loads(file.read_text().splitlines()[0])
    file.write_text(json.dumps({**row, **fields}) + "\n")
    with pytest.raises(ManifestError, match=f"{file}: not a case file"):
        frozen_cases(tmp_path, manifest.entries["gsm8k"])


@pytest.mark.parametrize("name", ["manifest.json", "cases/gsm8k.jsonl"])
def test_a_directory_in_the_place_of_a_kept_file_is_named(tmp_path: Path, name: str) -> None:
    manifest = load_manifest(ROOT / "manifests" / "smoke.json")
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(StoreError, match=f"{name}: Is a directory"):
        freeze_into(tmp_path, manifest, load_cases(manifest))


def test_cases_that_cannot_fit_are_named() -> None:
    manifest = load_manifest(ROOT / "manifests" / "smoke.json")
    cases = load_cases(manifest)
    sizes: list[int] = []

    def count(body: Any) -> int:
        sizes.append(len(json.dumps(body["messages"])))
        return sizes[-1]

    list(oversized(manifest, cases, count_tokens=count, context_tokens=10**9))
    limit = max(sizes[:3]) + manifest.entries["schema"].sampling.max_tokens - 1
    found = list(oversized(manifest, cases, count_tokens=count, context_tokens=limit))
    assert any(one.entry == "schema" for one in found)
    assert all("cannot fit" in str(one) for one in found)


def test_show_prints_a_case_and_its_request(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ROOT / "manifests" / "smoke.json")
    assert main(["manifest", "show", path]) == 0
    assert "gsm8k: 2 cases of word_problems@1" in capsys.readouterr().out
    assert main(["manifest", "show", path, "--case", "wp-002"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["expected"]["gold"] == "22"
    assert "5 trays of 12 rolls" in shown["body"]["messages"][0]["content"]
    assert main(["manifest", "show", path, "--case", "nope"]) == 2


def test_the_example_of_the_help_text_works() -> None:
    (command,) = [line for line in EXAMPLE.splitlines() if " show " in line]
    _, _, _, file, _, case = command.split()
    assert case in load_manifest(ROOT / file).entries["bfcl"].case_ids
