"""Which cards are a launch's own, and whether their memory is back before the next launch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalharness.errors import ServerError
from evalharness.server import node
from evalharness.server.node import gpus, visible, wait_for_memory
from tests.e2e.fake_run import FakeFactorial

# Two cards; the second one's use grows by 30,000 MiB with every reading, as a neighbour's would.
SMI = """#!/bin/sh
case "$*" in
*compute-apps*) exit 0 ;;
esac
n=$(cat {count} 2>/dev/null || echo 0)
echo $((n + 1)) > {count}
echo "0, GPU-aaaa, H200, 143771, $(cat {own}), 580.1"
echo "1, GPU-bbbb, H200, 143771, $((n * 30000)), 580.1"
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvidia-smi first in the PATH; returns the file that holds card 0's used MiB."""
    folder = tmp_path / "bin"
    folder.mkdir()
    own = tmp_path / "own"
    own.write_text("10")
    script = folder / "nvidia-smi"
    script.write_text(SMI.format(count=tmp_path / "count", own=own))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(node, "MEMORY_WAIT_S", 0.0)
    return own


def indices(devices: str | None) -> list[int]:
    cards: list[dict[str, Any]] = [
        {"index": n, "uuid": uuid} for n, uuid in enumerate(("GPU-aa11", "GPU-aa22", "GPU-bb33"))
    ]
    return [card["index"] for card in visible(cards, devices)]


@pytest.mark.parametrize(
    ("devices", "wanted"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("1", [1]),
        ("2, 0", [2, 0]),
        ("GPU-bb", [2]),
        ("GPU-aa22,0", [1, 0]),
        ("0,7,1", [0]),  # what CUDA cannot name hides the rest
        ("GPU-aa", []),  # names two
        ("0,0", []),
        ("0,GPU-aa11", []),
        ("²", []),
        ("9" * 5000, []),
        ("MIG-aa11", []),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_visible_cards(devices: str | None, wanted: list[int]) -> None:
    assert indices(devices) == wanted


def test_a_card_without_an_index_and_a_name_that_is_not_utf8(smi: Path) -> None:
    script = Path(smi.parent / "bin" / "nvidia-smi")
    script.write_text(
        '#!/bin/sh\ncase "$*" in *compute-apps*) exit 0 ;; esac\n'
        "printf '[N/A], GPU-aaaa, H\\377, [N/A], [N/A], 580.1\\n'\n"
    )
    (card,) = gpus()
    assert (card["index"], card["uuid"], card["memory_used_mib"]) == (0, "GPU-aaaa", None)


async def test_a_neighbours_memory_is_not_waited_for(smi: Path) -> None:
    before = visible(gpus(), "0")
    assert [card["index"] for card in visible(await wait_for_memory(before), "0")] == [0]
    smi.write_text("40000")
    with pytest.raises(ServerError, match="GPU 0: 40000 MiB in use, 10 before"):
        await wait_for_memory(before)


def test_a_factorial_beside_another_program_on_the_next_card(
    smi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    work = FakeFactorial(tmp_path / "work", cases=1, concurrency="1")
    code, output = work.finish()
    assert code == 0, output
    records = [json.loads(p.read_text()) for p in work.run.glob("arms/*/*/server.json")]
    assert len(records) == 3
    for record in records:
        assert [card["index"] for card in record["node"]["gpus"]] == [0]
        assert [card["index"] for card in record["gpu_after"]] == [0]
