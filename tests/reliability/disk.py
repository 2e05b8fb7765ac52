"""A full disk and a read-only run, on a tmpfs of a few hundred KiB."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from evalharness.errors import StoreError
from evalharness.store import read_responses
from tests.e2e.fake_run import FakeFactorial, processes_of
from tests.reliability.going_on import new_work
from tests.reliability.tally import Tally

WHY_NOT = "mounting a tmpfs needs root and CAP_SYS_ADMIN"


@contextlib.contextmanager
def tmpfs(folder: Path, size_kib: int) -> Iterator[Path]:
    """Mount a tmpfs of that size; raises OSError where this is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip())
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def may_mount(folder: Path) -> bool:
    """Say whether a tmpfs can be mounted here."""
    if os.geteuid():
        return False
    try:
        with tmpfs(folder, 64):
            return True
    except OSError:
        return False


def resize(folder: Path, options: str) -> None:
    """Remount a tmpfs with other options."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def used_kib(run: Path) -> int:
    """Return what a run takes on a tmpfs: whole pages, and one for each folder."""
    pages = [-(-path.stat().st_size // 4096) for path in run.rglob("*") if path.is_file()]
    return 4 * sum(pages)


def disk_full(folder: Path, times: int, expected: FakeFactorial) -> Tally:
    """Run on a disk that fills up at moments spread over the run, give room, run again."""
    tally = Tally("disk full (tmpfs), then room and the same command")
    for number in range(times):
        size_kib = max(8, int(used_kib(expected.run) * (number + 0.5) / times) // 4 * 4)
        tally.times += 1
        work = new_work(folder / f"full-{number}")
        with tmpfs(work.run, size_kib):
            code, output = work.finish()
            tally.check(code in (2, 3, 12), f"{size_kib} KiB: exit {code}: {output[-400:]}")
            tally.check("Traceback" not in output, f"{size_kib} KiB: a traceback: {output[-900:]}")
            tally.check("No space left" in output, f"{size_kib} KiB: not named: {output[-400:]}")
            tally.check(not processes_of(work.run), f"{size_kib} KiB: processes are left")
            complete = _complete(work)
            before = {name: (work.run / name).read_bytes() for name in complete}
            resize(work.run, "size=64m")
            code, output = work.finish()
            tally.check(code == 0, f"{size_kib} KiB, again: exit {code}: {output[-400:]}")
            changed = [name for name in before if (work.run / name).read_bytes() != before[name]]
            tally.check(not changed, f"complete cells changed: {changed}", loses=True)
            tally.check(work.scores() == expected.scores(), "scores differ", loses=True)
            _all_readable(work, tally)
            partial = [str(path) for path in work.run.rglob("*") if _is_partial(path)]
            tally.check(not partial, f"half-written files are left: {partial}")
    return tally


def _is_partial(path: Path) -> bool:
    return path.suffix in (".partial", ".part", ".tmp")


def _complete(work: FakeFactorial) -> list[str]:
    return [
        f"responses/{r['arm']}/{r['launch']:03d}/{r['suite']}.{r['mode']}"
        f"-c{r['concurrency']}-r{r['replicate']}.jsonl"
        for r in work.records()
        if r["state"] == "complete"
    ]


def _all_readable(work: FakeFactorial, tally: Tally) -> None:
    for name in _complete(work):
        try:
            read_responses(work.run / name)
        except StoreError as error:
            tally.check(False, str(error), loses=True)


def read_only(folder: Path, times: int) -> Tally:
    """Try to start, and to continue, a run on a read-only disk."""
    tally = Tally("read-only RUN (tmpfs), new and half done")
    for number in range(times):
        tally.times += 1
        work = new_work(folder / f"ro-{number}")
        with tmpfs(work.run, 4096):
            if number % 2:
                work.finish("--max-launches", "1")
            asked = work.asked()
            resize(work.run, "ro")
            code, output = work.finish()
            tally.check(code == 2, f"exit {code}: {output[-400:]}")
            tally.check("Read-only file system" in output, f"not named: {output[-400:]}")
            tally.check("Traceback" not in output, f"a traceback: {output[-900:]}")
            tally.check(work.asked() == asked, "something was asked", loses=True)
            resize(work.run, "rw")
            code, output = work.finish()
            tally.check(code == 0, f"writable again: exit {code}: {output[-400:]}", loses=True)
    return tally
