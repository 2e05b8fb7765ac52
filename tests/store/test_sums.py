"""SHA256SUMS as it is written: every file of the run once, through links, without end."""

from __future__ import annotations

import hashlib
from pathlib import Path

from evalharness.store import read_sums, write_sums


def test_evidence_is_listed_through_links_and_loops_end(tmp_path: Path) -> None:
    run, away = tmp_path / "run", tmp_path / "away"
    (away / "x").mkdir(parents=True)
    (away / "x" / "a.jsonl").write_text("{}")
    run.mkdir()
    (run / "scores").symlink_to(away)
    (away / "loop").symlink_to(away)
    (run / "mine").symlink_to(away)
    write_sums(run)
    assert read_sums(run) == {"scores/x/a.jsonl": hashlib.sha256(b"{}").hexdigest()}


def test_names_that_a_line_cannot_hold_do_not_spoil_the_list(tmp_path: Path) -> None:
    for name in (b"two\nlines", b"latin-\xe9", b"plain"):
        Path(str(tmp_path), name.decode("utf-8", "surrogateescape")).write_text("")
    write_sums(tmp_path)
    assert read_sums(tmp_path) == {"plain": hashlib.sha256(b"").hexdigest()}


def test_the_order_is_that_of_folders(tmp_path: Path) -> None:
    for name in ("arms/a/x", "arms/a-b/x", "arms.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    write_sums(tmp_path)
    assert list(read_sums(tmp_path) or {}) == ["arms/a/x", "arms/a-b/x", "arms.txt"]


def test_what_a_killed_process_left_half_written_is_not_listed(tmp_path: Path) -> None:
    for name in ("scores/a.jsonl", "scores/a.jsonl.77.partial", "plan.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    write_sums(tmp_path)
    assert list(read_sums(tmp_path) or {}) == ["plan.json", "scores/a.jsonl"]
