"""Data sources: the same rows from wheel, hub and local files; nothing fetched while reading."""

from __future__ import annotations

import json
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalharness import data
from evalharness.cli.main import main
from evalharness.data import KNOWN, Source, fetch, locate, rows
from evalharness.errors import ManifestError
from evalharness.registry import suite_named

PROBLEMS = [
    {"question": "1+1?", "answer": "#### 2"},
    {"question": "2+2?", "answer": "#### 4"},
]


@pytest.fixture(autouse=True)
def no_cached_rows() -> Iterator[None]:
    rows.cache_clear()
    yield
    rows.cache_clear()


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Neither local files nor a cache; returns the cache folder."""
    monkeypatch.delenv("EVALHARNESS_DATA", raising=False)
    monkeypatch.setenv("EVALHARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _digests(source: Source, suite: str) -> list[str]:
    rows.cache_clear()
    to_case = suite_named(suite).to_case
    return [to_case(row_id, row).digest for row_id, row in rows(source).items()]


def test_hub_and_local_files_give_the_same_digests(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def load_dataset(*args: Any, **options: Any) -> list[dict[str, str]]:
        asked.append((args, options))
        return PROBLEMS

    stand_in = types.ModuleType("datasets")
    stand_in.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    assert locate(KNOWN["gsm8k"]) is None
    assert fetch(KNOWN["gsm8k"]).is_relative_to(empty)
    from_hub = _digests(KNOWN["gsm8k"], "gsm8k")
    assert asked == [(("openai/gsm8k", "main"), {"split": "test", "revision": data.GSM8K_REVISION})]
    local = tmp_path / "local" / "gsm8k"
    local.mkdir(parents=True)
    lines = [json.dumps(dict(reversed(row.items())), indent=None) for row in PROBLEMS]
    (local / "test.jsonl").write_text("\n".join(lines))
    shutil.rmtree(empty)
    monkeypatch.setenv("EVALHARNESS_DATA", f"/nonexistent:{tmp_path / 'local'}")
    assert _digests(KNOWN["gsm8k"], "gsm8k") == from_hub
    assert list(rows(KNOWN["gsm8k"])) == ["gsm8k-test-0000", "gsm8k-test-0001"]


def test_absent_data_is_named_with_the_remedy(empty: Path) -> None:
    for name in ("bfcl", "gsm8k", "WashingtonPost"):
        with pytest.raises(ManifestError, match="evalharness data fetch") as caught:
            rows(KNOWN[name])
        assert str(empty) in str(caught.value)


def test_a_failing_hub_and_a_missing_package(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ManifestError, match=r"pip install '\.\[data\]'"):
        fetch(KNOWN["gsm8k"])

    def load_dataset(*_args: Any, **_options: Any) -> None:
        raise ConnectionError("no route")

    stand_in = types.ModuleType("datasets")
    stand_in.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    with pytest.raises(ManifestError, match="no route"):
        fetch(KNOWN["gsm8k"])
    assert not list(empty.rglob("*.jsonl"))


def test_a_failing_download_says_what_pip_said(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ManifestError, match="pip download"):
        fetch(KNOWN["bfcl"])
    assert not list(empty.rglob("*.whl"))


def test_another_wheel_under_the_same_name_is_refused(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = empty / "bfcl_eval-2026.3.23-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(b"PK")
    with pytest.raises(ManifestError, match="SHA-256"):
        rows(KNOWN["bfcl"])
    monkeypatch.setattr(data, "BFCL_WHEEL_SHA256", "0" * 64)
    with pytest.raises(ManifestError, match="expected 0000"):
        rows(KNOWN["bfcl"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: not JSON"),
        ('{"id":"a"}\n[]', "line 2: expected an object"),
        ('{"id":"a"}\n\n{"id":"a"}', "two rows have the id a"),
    ],
)
def test_a_malformed_file_names_the_line(
    tmp_path: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    monkeypatch.setenv("EVALHARNESS_DATA", str(tmp_path))
    with pytest.raises(ManifestError, match=message):
        rows(Source(kind="jsonl", id="x", revision="1", file="x.jsonl"))


def test_bfcl_rows_carry_their_ground_truth() -> None:
    if locate(KNOWN["bfcl"]) is None:
        pytest.skip("bfcl-eval's wheel is not here: run `evalharness data fetch bfcl`")
    found = rows(KNOWN["bfcl"])
    assert len(found) == 3491
    without = {
        row_id.rpartition("_")[0] for row_id, row in found.items() if "ground_truth" not in row
    }
    assert without == {"irrelevance", "live_irrelevance", "live_relevance"}


def test_where_and_fetch_on_the_command_line(
    empty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "where"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(KNOWN)
    assert "not here" in lines[0]
    assert str(data.PACKAGED) in lines[-1]
    assert main(["data", "fetch", "word_problems"]) == 0
    assert "16 rows" in capsys.readouterr().out
    assert main(["data", "fetch", "nope"]) == 2
    assert not empty.exists()
