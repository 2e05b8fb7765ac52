#!/usr/bin/env python3
"""kill -9 the harness at many moments, then run the same command: nothing lost, nothing doubled.

Moments are uniform over the requests of a run against deterministic loopback servers, with a
random delay after each, so that they fall on requests in flight, writes, fsyncs, records, server
starts and stops. Prints one line a trial and a table; exits 1 if anything was lost or wrong.

  python -m tests.e2e.kill_many --times 200 [--seed 1] [--write FILE.md]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.fake_run import FakeFactorial, processes_of

DELAY_S = 0.04
GONE_TIMEOUT_S = 40.0
# After the moment: through the answer, its write and fsync, a record, a stop, the next start.
EXTRA_DELAY_S = 0.4


@dataclass
class Tally:
    """What the trials found."""

    trials: int = 0
    killed: int = 0
    aborted_cells: int = 0
    kept_responses: int = 0
    faults: list[str] = field(default_factory=list)


def new_work(folder: Path) -> FakeFactorial:
    """Return a small factorial: two arms, one width, two suites in three modes."""
    env = {"FAKE_DELAY_S": str(DELAY_S)}
    return FakeFactorial(folder, env=env, concurrency="2", cases=6, aa=False, manifest_name="demo")


def lines_on_disk(work: FakeFactorial) -> dict[str, bytes]:
    """Return the whole lines of every response file."""
    files = sorted(work.run.glob("responses/*/*/*.jsonl"))
    return {
        str(path.relative_to(work.run)): path.read_bytes().rpartition(b"\n")[0] for path in files
    }


def complete_files(work: FakeFactorial) -> set[str]:
    """Return the response files whose cell is complete."""
    return {
        f"responses/{r['arm']}/{r['launch']:03d}/{r['suite']}.{r['mode']}"
        f"-c{r['concurrency']}-r{r['replicate']}.jsonl"
        for r in work.records()
        if r["state"] == "complete"
    }


def trial(work: FakeFactorial, moment: int, delay_s: float, expected: FakeFactorial) -> list[str]:
    """Kill at the moment, continue, and return what went wrong."""
    process = work.start()
    while len(work.asked()) < moment and process.poll() is None:
        time.sleep(0.005)
    time.sleep(delay_s)
    process.kill()
    process.communicate()
    wait_gone(work)
    asked, before, complete = Counter(work.asked()), lines_on_disk(work), complete_files(work)
    code, output = work.finish()
    faults = [] if code == 0 else [f"exit {code}: {output[-300:]}"]
    after = lines_on_disk(work)
    faults += [
        f"{name}: {len(text)} bytes at the kill, changed since"
        for name, text in before.items()
        if not after.get(name, b"").startswith(text)
    ]
    faults += [
        f"{name}: a complete cell changed" for name in complete if after[name] != before[name]
    ]
    wanted = sum(Counter(expected.asked()).values())
    again = sum(Counter(work.asked()).values()) - sum(asked.values())
    done = sum(before[name].count(b"\n") + 1 for name in complete)
    if again != wanted - done:
        faults.append(f"asked {again} after the kill, expected {wanted - done}")
    if work.scores() != expected.scores():
        faults.append("scores differ from an undisturbed run's")
    if processes_of(work.run):
        faults.append("processes are left")
    return faults


def wait_gone(work: FakeFactorial) -> None:
    """Wait until the killed harness's server is gone."""
    end_s = time.monotonic() + GONE_TIMEOUT_S
    while processes_of(work.run) and time.monotonic() < end_s:
        time.sleep(0.05)


def run_trials(times: int, seed: int, folder: Path) -> Tally:
    """Run the trials."""
    expected = new_work(folder / "expected")
    code, output = expected.finish()
    assert code == 0, output
    total, rng, tally = len(expected.asked()), random.Random(seed), Tally()
    for number in range(times):
        work = new_work(folder / f"trial-{number:04d}")
        moment, delay_s = rng.randint(0, total), rng.random() ** 2 * EXTRA_DELAY_S
        faults = trial(work, moment, delay_s, expected)
        records = work.records()
        aborted = [record for record in records if record["state"] == "aborted"]
        tally.trials += 1
        tally.killed += bool(aborted) or len(list(work.run.glob("arms/*/*"))) > 2
        tally.aborted_cells += len(aborted)
        tally.kept_responses += sum(record["rows"] for record in aborted)
        tally.faults += [f"trial {number}: {fault}" for fault in faults]
        say(f"{number:4d} at request {moment:2d} + {delay_s:.2f} s: {faults or 'ok'}")
    return tally


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally = run_trials(args.times, args.seed, Path(folder))
    table = (
        "| fault | times | fell into a running launch | aborted cells kept | their responses kept "
        "| lost or wrong |\n|---|---|---|---|---|---|\n"
        f"| kill -9 of the harness, then the same command | {tally.trials} | {tally.killed} | "
        f"{tally.aborted_cells} | {tally.kept_responses} | {len(tally.faults)} |\n"
    )
    say(table)
    for fault in tally.faults:
        say(fault)
    if args.write:
        args.write.write_text(table, encoding="utf-8")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
