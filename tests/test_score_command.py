"""`evalharness score`: files in, files out, bad rows reported and stopping nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalharness.cli.main import main

FIXTURES = Path(__file__).parent / "fixtures"


def _run(tmp_path: Path, suite: str, lines: list[bytes], *options: str) -> list[dict[str, object]]:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b"\n".join(lines) + b"\n")
    code = main(["score", suite, "--input", str(source), "--output", str(target), *options])
    assert code == 0
    return [json.loads(line) for line in target.read_text().splitlines()]


def test_one_row_per_row_in_order(tmp_path: Path) -> None:
    lines = (FIXTURES / "gsm8k" / "vectors.jsonl").read_bytes().splitlines()
    rows = _run(tmp_path, "gsm8k", lines, "--scorer", "numeric")
    asked = [json.loads(line) for line in lines]
    assert [row["id"] for row in rows] == [row["id"] for row in asked]
    assert [row["outcome"] == "correct" for row in rows] == [row["numeric"] for row in asked]
    assert {row["scorer"] for row in rows} == {"numeric/1"}


BAD_ROWS = {
    "bfcl": [
        b'{"id":"a","category":"multiple","functions":[],"gold":[]}',
        b'{"id":"b","category":7,"functions":[],"gold":[],"calls":[]}',
        b'{"id":"c","category":"multiple","functions":[],"gold":[],"calls":["x"]}',
        b'{"id":"d","category":"multiple","functions":[],"gold":null,"calls":[]}',
    ],
    "schema": [b'{"id":"a","output":"1"}', b'{"id":"b","schema":5,"output":"1"}'],
    "gsm8k": [b'{"id":"a","output":"1"}', b'{"id":"b","gold":5,"output":"1"}'],
}


@pytest.mark.parametrize("suite", BAD_ROWS)
def test_bad_rows_stop_nothing(
    tmp_path: Path, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = (FIXTURES / suite / "vectors.jsonl").read_bytes().splitlines()[0]
    bad = [b"{", b"[]", b"\xff", b'{"id":"x"}', b"[" * 5000, *BAD_ROWS[suite]]
    rows = _run(tmp_path, suite, [*bad, good])
    assert len(rows) == len(bad) + 1
    assert all(row["outcome"] == "unobserved" for row in rows[:-1])
    assert rows[-1]["outcome"] in ("correct", "wrong")
    errors = capsys.readouterr().err
    for number in range(1, len(bad) + 1):
        assert f"in.jsonl line {number}: " in errors


def test_unknown_suite_scorer_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    ends = ["--input", str(source), "--output", str(target)]
    assert main(["score", "nope", *ends]) == 2
    assert main(["score", "bfcl", *ends]) == 2
    source.write_text("")
    assert main(["score", "bfcl", *ends, "--scorer", "nope"]) == 2
    errors = capsys.readouterr().err
    assert "bfcl, schema, gsm8k" in errors
    assert "official/1, corrected/1" in errors
    assert not target.exists()


def test_raw_calls_in_both_readings() -> None:
    """Malformed, truncated, duplicated and non-object arguments, as official and as corrected."""
    from evalharness.bfcl import SUITE

    assert SUITE.score_vector is not None
    for line in (FIXTURES / "bfcl" / "raw.jsonl").read_text().splitlines():
        row = json.loads(line)
        for reading in ("official", "corrected"):
            found = SUITE.score_vector(row, f"{reading}/1")
            expected = "correct" if row[reading] else "wrong"
            assert found["outcome"] == expected, (row["id"], reading, found)
