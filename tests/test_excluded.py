"""A case that the scorer excludes leaves the denominator in every arm, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalharness.pairing import outcome_tables
from evalharness.runs import load_run
from tests.report.plant import Plant, plant_run


def _exclude(run: Path, positions: set[int], *, arms: str = "*") -> set[str]:
    ids = set()
    for path in (run / "scores").glob(f"*/{arms}/*/*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for position in positions:
            rows[position]["reason"] = "excluded:unpassable_gold"
            ids.add(rows[position]["case_id"])
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ids


@pytest.mark.parametrize("arms", ["*", "control"])
def test_excluded_cases_are_not_counted(tmp_path: Path, arms: str) -> None:
    run = plant_run(tmp_path / "run", Plant())
    whole = outcome_tables([load_run(run)])
    ids = _exclude(run, {3, 5}, arms=arms)
    tables = outcome_tables([load_run(run)])
    assert len(ids) == 2
    assert [len(table.case_ids) for table in tables] == [len(t.case_ids) - 2 for t in whole]
    for table, before in zip(tables, whole, strict=True):
        assert set(before.case_ids) - set(table.case_ids) == ids
        kept = [i for i, case_id in enumerate(before.case_ids) if case_id not in ids]
        assert (table.outcomes == before.outcomes[:, :, kept]).all()
