"""Stored lines torn, cut, doubled, swapped and flipped; rows removed from either side."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from evalharness.cli.main import main
from evalharness.errors import StoreError
from evalharness.factorial.cells import complete_cells
from evalharness.store import read_responses
from tests.reliability.tally import Tally
from tests.report.plant import BFCL, Plant, paired, plant_run, write_sums

Damage = Callable[[bytes, random.Random], bytes]
ONE_FACTOR = {"hc": ("off", "on")}
NOT_ADMITTED = (10, 11, 12)


def torn(raw: bytes, rng: random.Random) -> bytes:
    """Cut inside the last line."""
    start = raw.rindex(b"\n", 0, len(raw) - 1) + 1
    return raw[: rng.randrange(start + 1, len(raw))]


def truncated(raw: bytes, rng: random.Random) -> bytes:
    """Cut anywhere, at the end of a line too."""
    return raw[: rng.randrange(len(raw))]


def doubled(raw: bytes, rng: random.Random) -> bytes:
    """Write one line a second time."""
    lines = raw.splitlines(keepends=True)
    lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    return b"".join(lines)


def flipped(raw: bytes, rng: random.Random) -> bytes:
    """Flip one bit anywhere."""
    place = rng.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ (1 << rng.randrange(8))]) + raw[place + 1 :]


def removed(raw: bytes, rng: random.Random) -> bytes:
    """Take one line away."""
    lines = raw.splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    return b"".join(lines)


KINDS: dict[str, Damage] = {
    "stored file: torn last line": torn,
    "stored file: truncated": truncated,
    "stored line doubled": doubled,
    "stored byte flipped": flipped,
    "stored line removed": removed,
}


def planted(folder: Path) -> tuple[Path, Path]:
    """Return a small sound run and one of its response files."""
    run = plant_run(folder, Plant(factors=ONE_FACTOR, concurrency=(4,)))
    (file,) = run.glob("responses/hc/*/*.jsonl")
    return run, file


def damaged(folder: Path, times: int, seed: int) -> list[Tally]:
    """Damage a stored file in every way so many times: always found, with file named."""
    run, file = planted(folder / "sound")
    raw, rng = file.read_bytes(), random.Random(seed)
    tallies = []
    for name, damage in KINDS.items():
        tally = Tally(name)
        for _ in range(times):
            tally.times += 1
            file.write_bytes(damage(raw, rng))
            tally.check(_refusal(run, file), "the continued run uses it", loses=True)
            if damage not in (truncated, removed):  # these two only the record's digest can tell
                tally.check(_reader_finds(file), "the reader takes it", loses=True)
        file.write_bytes(raw)
        tally.check(not _refusal(run, file), "a sound file is refused")
        tallies.append(tally)
    return tallies


def _refusal(run: Path, file: Path) -> bool:
    try:
        complete_cells(run)
    except StoreError as error:
        return str(file) in str(error)
    return False


def _reader_finds(file: Path) -> bool:
    try:
        read_responses(file)
    except StoreError as error:
        return f"{file} line " in str(error)
    return False


def judged(run: Path) -> tuple[int, str]:
    """Return the exit code and the candidate's verdict."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = main(["noninferiority", str(run), "--format", "json"])
    report = json.loads((run / "report" / "report.json").read_text())
    return code, next(arm["verdict"] for arm in report["arms"] if arm["name"] == "hc")


def remove_rows(run: Path, arm: str, rows: set[int], hides: tuple[str, ...]) -> None:
    """Take rows out of an arm's files, as one would who wants it unseen.

    hides: what is made to agree again: `scores`, `record` (counts and digest), `sums`.
    """
    for file in run.glob(f"responses/{arm}/*/*.jsonl"):
        targets = [file]
        if "scores" in hides:
            targets += run.glob(f"scores/*/{file.relative_to(run / 'responses')}")
        for target in targets:
            lines = target.read_bytes().splitlines(keepends=True)
            kept = [line for index, line in enumerate(lines) if index not in rows]
            target.write_bytes(b"".join(kept))
        if "record" in hides:
            _make_record_agree(file)
    if "sums" in hides:
        write_sums(run)


def _make_record_agree(file: Path) -> None:
    path = file.with_name(file.name.replace(".jsonl", ".cell.json"))
    record, raw = json.loads(path.read_text()), file.read_bytes()
    count = raw.count(b"\n")
    record |= {"rows": count, "expected_rows": count, "status_counts": {"ok": count}}
    record["responses_sha256"] = hashlib.sha256(raw).hexdigest()
    path.write_text(json.dumps(record))


HIDING = (
    (),
    ("sums",),
    ("scores", "sums"),
    ("record", "sums"),
    ("scores", "record"),
    ("scores", "record", "sums"),
)


def rows_removed(folder: Path, times: int, seed: int) -> list[Tally]:
    """Remove a tenth of the rows of the candidate, or of the control; never `admitted`.

    The rows are the ones whose absence helps the candidate most, or random ones; the margin is
    wide, or such that the whole run is undecided.
    """
    rng, tallies = random.Random(seed), []
    for arm, best in (("hc", set(range(8))), ("control", set(range(8))), ("both", set(range(8)))):
        tally = Tally(f"a tenth of the rows removed: {arm}")
        for number in range(times):
            tally.times += 1
            losses, margin = (8, 0.1) if number % 2 else (0, 0.3)
            outcomes = paired(correct=60, wins=0, losses=losses, arms=("hc",))
            plant = Plant(
                factors=ONE_FACTOR, concurrency=(4,), outcomes=outcomes, margins={"bfcl": margin}
            )
            run = plant_run(folder / f"{arm}-{number}", plant)
            rows = best if number % 3 == 0 else set(rng.sample(range(BFCL.cases), 8))
            hides = HIDING[number % len(HIDING)]
            for name in ("hc", "control") if arm == "both" else (arm,):
                remove_rows(run, name, rows, hides)
            code, verdict = judged(run)
            said = f"exit {code} {verdict}, hidden in {hides}, margin {margin}"
            tally.check(code in NOT_ADMITTED and verdict != "admitted", said)
            shutil.rmtree(run)
        tallies.append(tally)
    return tallies
