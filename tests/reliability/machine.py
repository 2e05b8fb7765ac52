"""The machine's own faults: clock jumps, too few open files, several harnesses on one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.fake_run import ROOT, FakeFactorial
from tests.reliability.going_on import check_nobody_left, new_work
from tests.reliability.tally import Tally

# Every reading of the wall clock is another day, forward and back.
JUMPING_CLOCK = """\
import itertools, time
_real, _step = time.time, itertools.count()
def _now():
    return _real() + 86400.0 * ((next(_step) * 37) % 11 - 5)
_gmtime, _localtime, _strftime = time.gmtime, time.localtime, time.strftime
time.time = _now
time.gmtime = lambda s=None: _gmtime(_now() if s is None else s)
time.localtime = lambda s=None: _localtime(_now() if s is None else s)
time.strftime = lambda f, t=None: _strftime(f, time.localtime() if t is None else t)
"""


def run_with(work: FakeFactorial, env: dict[str, str], *before: str) -> tuple[int, str]:
    """Run the work's command with more environment, after `before` on the command line."""
    done = subprocess.run(
        [*before, *work.command()],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def clock_jumps(folder: Path, times: int, expected: FakeFactorial) -> Tally:
    """Run with a wall clock that jumps by days at every reading, in harness and server."""
    tally = Tally("wall clock jumps by days at every reading")
    site = folder / "site"
    site.mkdir(parents=True)
    (site / "sitecustomize.py").write_text(JUMPING_CLOCK)
    path = os.pathsep.join([str(site), str(ROOT)])
    for number in range(times):
        tally.times += 1
        work = new_work(folder / f"clock-{number}")
        code, output = run_with(work, {"PYTHONPATH": path})
        tally.check(code == 0, f"exit {code}: {output[-400:]}")
        tally.check(work.scores() == expected.scores(), "other scores", loses=True)
        days = {record["started_utc"][:10] for record in work.records()}
        tally.check(len(days) > 1, f"the clock did not jump: {days}")
        tally.check(_sound_times(work), "times of requests run backwards")
    return tally


def _sound_times(work: FakeFactorial) -> bool:
    for path in work.run.glob("responses/*/*/*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            took_ns = row["done_ns"] - row["sent_ns"]
            if not 0 < took_ns < 60e9 or not row["sent_ns"] < row["first_byte_ns"]:
                return False
    return True


LIMIT = (
    "import resource, sys, os; n = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)); os.execv(sys.argv[2], sys.argv[2:])"
)


def open_files(folder: Path) -> Tally:
    """Allow as many open files as the run says it needs, and one fewer."""
    tally = Tally("limit of open files")
    for number, (limit, wanted) in enumerate(((130, 0), (129, 2), (40, 2))):
        tally.times += 1
        work = new_work(folder / f"files-{number}")
        code, output = run_with(work, {}, sys.executable, "-c", LIMIT, str(limit))
        tally.check(code == wanted, f"{limit} files: exit {code}: {output[-400:]}")
        tally.check("Traceback" not in output, f"{limit} files: a traceback")
        if wanted:
            named = f"{limit} open files are allowed, concurrency 2 needs 130" in output
            tally.check(named, f"not named: {output[-300:]}")
            tally.check(not work.asked(), "something was asked", loses=True)
        counts = [record["status_counts"] for record in work.records()]
        tally.check(all(set(one) == {"ok"} for one in counts), f"errors of our own: {counts}")
    return tally


def two_harnesses(folder: Path, times: int, expected: FakeFactorial) -> Tally:
    """Start four harnesses on one run at once: one works, the others say who does."""
    tally = Tally("four harnesses on one run at once")
    for number in range(times):
        tally.times += 1
        work = new_work(folder / f"four-{number}")
        processes = [work.start() for _ in range(4)]
        ends = [(p.communicate(timeout=180)[0], p.returncode, p.pid) for p in processes]
        codes = sorted(code for _, code, _ in ends)
        winners = {pid for _, code, pid in ends if code == 0}
        named = [f"in use by process {pid} on " for pid in winners]
        refused = [output for output, code, _ in ends if code == 2]
        # One that comes after another's end finds the run complete and asks nothing.
        tally.check(set(codes) <= {0, 2} and 0 in codes, f"exit codes {codes}")
        said = all(any(name in output for name in named) for output in refused)
        tally.check(said, f"the holder is not named: {[text[-200:] for text in refused]}")
        tally.check(len(work.asked()) == len(expected.asked()), "asked twice", loses=True)
        tally.check(work.scores() == expected.scores(), "other scores", loses=True)
        check_nobody_left(work, tally)
    return tally
