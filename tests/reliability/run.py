"""The long run behind docs/reliability.md: every fault many times, and the table.

  python -m tests.reliability.run --times 200 --write docs/reliability.md

--times is the number of kill -9 moments; the other faults are tried in proportion. The work is cut
into pieces of a few minutes, each kept under --keep as JSON with its date, commit and seconds; an
interrupted run goes on with the pieces that are missing, `--only WORD` runs the pieces whose name
holds the word, and the table is made from the pieces that are there and says what is missing.
Exits 1 if anything was lost or wrong, or a piece is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.kill_many import run_trials
from tests.reliability.bad_input import fuzz, shares_of
from tests.reliability.damage import damaged, rows_removed
from tests.reliability.disk import WHY_NOT, disk_full, may_mount, read_only
from tests.reliability.elsewhere import elsewhere
from tests.reliability.going_on import undisturbed
from tests.reliability.interrupts import interrupts
from tests.reliability.machine import clock_jumps, open_files, two_harnesses
from tests.reliability.page import render
from tests.reliability.replies import replies
from tests.reliability.secrets_run import planted_key
from tests.reliability.tally import Tally

ROOT = Path(__file__).parents[2]
KILLS_A_PIECE = 5
INPUTS = 110_000
REQUESTS, WIDTH = 20_000, 64


@dataclass
class Found:
    """What one piece found: its tallies, and figures for the page."""

    tallies: list[Tally]
    figures: dict[str, Any] = field(default_factory=dict)


Piece = Callable[[Path], Found]


def kills(seed: int) -> Piece:
    """Return a piece of kill -9 moments; what changed on disk or was asked again is lost."""

    def piece(folder: Path) -> Found:
        found = run_trials(KILLS_A_PIECE, seed, folder)
        return kill_found(asdict(found))

    return piece


def kill_found(raw: Mapping[str, Any]) -> Found:
    """Return the tally of kill_many's own one."""
    words = ("changed", "asked")
    lost = [fault for fault in raw["faults"] if any(word in fault for word in words)]
    tally = Tally("kill -9 of the harness, then the same command", raw["trials"], len(lost))
    tally.wrong = len(raw["faults"]) - len(lost)
    tally.notes = list(raw["faults"])
    names = ("killed", "aborted_cells", "kept_responses")
    return Found([tally], {name: raw[name] for name in names})


def disks(folder: Path) -> Found:
    """Full and read-only disks."""
    if not may_mount(folder / "try"):
        return Found([], {"skipped": WHY_NOT})
    expected = undisturbed(folder / "expected")
    return Found([disk_full(folder / "full", 12, expected), read_only(folder / "ro", 4)])


def machine(folder: Path) -> Found:
    """Clock, files, hands."""
    expected = undisturbed(folder / "expected")
    clock = clock_jumps(folder / "clock", 3, expected)
    return Found([clock, open_files(folder), two_harnesses(folder, 3, expected)])


def loaded(_folder: Path) -> Found:
    """The load, in a process of its own: its memory is measured."""
    command = [sys.executable, "-m", "tests.reliability.load"]
    command += ["--requests", str(REQUESTS), "--width", str(WIDTH)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    figures = json.loads(done.stdout)
    counts = {name: figures.pop(name) for name in ("times", "lost", "wrong", "notes")}
    return Found([Tally(f"load: {WIDTH} streams, {REQUESTS} requests", **counts)], figures)


def secrets(folder: Path) -> Found:
    """The planted key, redirects, proxies, side questions."""
    import asyncio

    return Found([asyncio.run(planted_key(folder)), *elsewhere()])


def pieces(times: int, seed: int) -> dict[str, Piece]:
    """Return every piece of the run by name, short ones first."""
    found: dict[str, Piece] = {
        "replies": lambda _folder: Found(replies(max(1, times // 20))),
        "damage": lambda folder: Found(damaged(folder, times * 5, seed)),
        "rows": lambda folder: Found(rows_removed(folder, max(6, times // 10), seed)),
        "secrets": secrets,
        "fuzz": lambda folder: Found(fuzz(folder, shares_of(INPUTS * times // 200), seed)),
        "load": loaded,
        "machine": machine,
        "disks": disks,
    }
    for number in range(max(1, times // 20)):
        found[f"interrupts-{number:02d}"] = _interrupts(seed * 1000 + number)
    for number in range(1, -(-times // KILLS_A_PIECE) + 1):
        found[f"kill-{number:03d}"] = kills(seed * 1000 + number)
    return found


def _interrupts(seed: int) -> Piece:
    return lambda folder: Found(interrupts(folder, 1, random.Random(seed).randrange(1 << 30)))


def commit() -> str:
    """Return the commit that is tested, `+` after it where files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def run_piece(name: str, piece: Piece, keep: Path) -> None:
    """Run one piece and keep what it found."""
    say(f"{name}: starts")
    start_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = piece(Path(folder))
    record = {
        "piece": name,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} CPUs, {platform.system()}, Python {sys.version.split()[0]}",
        "seconds": round(time.monotonic() - start_s),
        "tallies": [asdict(tally) for tally in found.tallies],
        "figures": found.figures,
    }
    (keep / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for tally in found.tallies:
        say(f"  {tally.fault}: {tally.times} times, {tally.lost} lost, {tally.wrong} wrong")
        for note in tally.notes[:10]:
            say(f"    {note}")


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=200, help="kill -9 moments (200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "reliability")
    parser.add_argument("--only", default="", metavar="WORD", help="pieces whose name holds it")
    parser.add_argument("--write", type=Path, metavar="FILE.md")
    parser.add_argument("--table-only", action="store_true", help="run nothing, write the page")
    args = parser.parse_args()
    args.keep.mkdir(parents=True, exist_ok=True)
    wanted = pieces(args.times, args.seed)
    for name, piece in wanted.items():
        missing = not (args.keep / f"{name}.json").exists()
        if missing and args.only in name and not args.table_only:
            run_piece(name, piece, args.keep)
    kept = [json.loads(path.read_text()) for path in sorted(args.keep.glob("*.json"))]
    missing_names = [name for name in wanted if not (args.keep / f"{name}.json").exists()]
    page = render(kept, missing_names)
    if args.write:
        args.write.write_text(page, encoding="utf-8")
    say(page)
    counts = [t["lost"] + t["wrong"] for record in kept for t in record["tallies"]]
    return 1 if any(counts) or missing_names else 0


if __name__ == "__main__":
    sys.exit(main())
