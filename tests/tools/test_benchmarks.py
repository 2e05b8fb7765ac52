"""The benchmarks' own arithmetic and page: figures come from the rounds, kept parts stay."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from pathlib import Path

import pytest

from benchmarks import bench_growth, bench_peers, run_all
from benchmarks.bare_loop import main as bare_loop
from benchmarks.bench_peers import Round, summary, table
from benchmarks.loopback import loopback_server, rows, stats, write_rows
from benchmarks.peer_environments import INSPECT, LM_EVAL, environment


def test_figures_are_medians_and_ratios_are_of_the_same_round() -> None:
    bare = [Round(1.0, 0.2, 0.5, 30), Round(2.0, 0.4, 0.5, 30), Round(3.0, 0.9, 0.5, 30)]
    ours = [Round(2.0, 0.25, 1.0, 90), Round(4.0, 0.4, 3.0, 91), Round(9.0, 1.0, 2.0, 92)]
    found = summary({"bare aiohttp loop": bare, "evalharness": ours}, 100)
    assert found["evalharness"]["of_bare"] == 0.9  # of 0.8, 1.0 and 0.9
    assert found["evalharness"]["requests_per_s"] == 250
    assert found["evalharness"]["whole_process_s"] == 4.0
    assert found["evalharness"]["cpu_us_per_request"] == 20_000
    assert found["bare aiohttp loop"]["of_bare"] == 1.0
    text = table(found, 100)
    assert "| evalharness | 250 | 0.90 | 4.00 | 20000 | 91 | 3 |" in text


def test_the_server_times_every_client_and_forgets(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", 40)
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows(40)
    with loopback_server() as url:
        assert stats(url)["completions"] == 0
        asyncio.run(bare_loop(url, path))
        found = stats(url)
        assert found["completions"] == 40
        assert 0 < found["first_ns"] < found["last_ns"]
        assert stats(url)["completions"] == 0
        with urllib.request.urlopen(f"{url}/v1/models") as answer:
            assert json.load(answer)["data"][0]["id"] == "bench"


def test_a_tool_that_asks_too_little_is_no_figure(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", 5)
    with loopback_server() as url:
        tool = bench_peers.TOOLS[0]
        assert bench_peers.measure(tool, url, tmp_path, 5).phase_s > 0
        with pytest.raises(SystemExit, match="5 of 6 questions asked"):
            bench_peers.measure(tool, url, tmp_path, 6)


def test_every_process_keeps_byte_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in environment()
    assert environment()["PATH"] == os.environ["PATH"]
    assert all("==" in one for pins in (LM_EVAL, INSPECT) for one in pins.packages)


def test_a_part_replaces_its_own_and_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(
        run_all, "run", lambda name, command: (0, f"## {run_all.TITLES[name]}\n\nfirst {name}\n")
    )
    monkeypatch.setattr("sys.argv", ["run_all", "--out", str(page), "--only", "stats,client"])
    assert run_all.main() == 0
    monkeypatch.setattr(
        run_all, "run", lambda name, command: (1, f"## {run_all.TITLES[name]}\n\nsecond\n")
    )
    monkeypatch.setattr("sys.argv", ["run_all", "--out", str(page), "--only", "stats"])
    assert run_all.main() == 1
    text = page.read_text()
    assert "first client" in text and "first stats" not in text and text.count("second") == 1
    assert text.index("first client") < text.index("second")  # in the page's own order


def test_growth_shows_every_size(tmp_path: Path) -> None:
    figures = {"wall_s": 2.0, "cpu_s": 1.0, "mib": 50.0}
    found = {"asking": {1000: figures, 10_000: {**figures, "wall_s": 5.0}}}
    text = bench_growth.table(found)
    assert "| asking | 10,000 | 5.00 | 1.00 | 2,000 | 50 |" in text
    bench_growth.plot(found, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5_000
