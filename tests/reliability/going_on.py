"""After a disturbance: what was on disk, and whether the same command goes on from it."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from tests.e2e.fake_run import FakeFactorial, processes_of, wait_until
from tests.e2e.kill_many import complete_files, lines_on_disk
from tests.reliability.tally import Tally

GONE_TIMEOUT_S = 60.0


class Work(FakeFactorial):
    """A small factorial whose requests may take 5 s: a server that hangs is found soon."""

    def command(self, *more: str) -> list[str]:
        """The factorial's command line."""
        return super().command("--request-timeout", "5", *more)


def new_work(folder: Path, *, delay_s: float = 0.03) -> Work:
    """Return two arms, one width, two suites."""
    return Work(folder, env={"FAKE_DELAY_S": str(delay_s)}, concurrency="2", cases=4, aa=False)


def undisturbed(folder: Path) -> FakeFactorial:
    """Return a finished run of the same work."""
    work = new_work(folder)
    code, output = work.finish()
    assert code == 0, output
    return work


def ports_of(work: FakeFactorial) -> list[int]:
    """Return the ports of every server that the run started."""
    found = []
    for path in work.run.glob("arms/*/*/server.json"):
        url = path.read_text().partition('"base_url": "')[2].partition('"')[0]
        found.append(urlsplit(url).port or 0)
    return found


def held(port: int) -> bool:
    """Say whether somebody still listens on a port of the loopback."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def check_nobody_left(work: FakeFactorial, tally: Tally) -> None:
    """Check that no process of the run lives and no port of it is held."""
    try:
        wait_until(lambda: not processes_of(work.run), timeout_s=GONE_TIMEOUT_S)
    except AssertionError:
        tally.check(False, f"processes are left: {processes_of(work.run)}")
    listening = [port for port in ports_of(work) if held(port)]
    tally.check(not listening, f"ports are held: {listening}")


class Snapshot:
    """What a run had on disk, and had asked, at one moment."""

    def __init__(self, work: FakeFactorial) -> None:
        self.lines = lines_on_disk(work)
        self.complete = complete_files(work)
        self.asked = sum(Counter(work.asked()).values())


def go_on(work: FakeFactorial, before: Snapshot, expected: FakeFactorial, tally: Tally) -> None:
    """Run the same command again and check that nothing was lost, doubled or changed."""
    code, output = work.finish()
    tally.check(code == 0, f"again: exit {code}: {output[-300:]}")
    after = lines_on_disk(work)
    for name, text in before.lines.items():
        kept = after.get(name, b"").startswith(text)
        tally.check(kept, f"{name} changed", loses=True)
    for name in before.complete:
        tally.check(after.get(name) == before.lines[name], f"{name}: complete, changed", loses=True)
    done = sum(before.lines[name].count(b"\n") + 1 for name in before.complete)
    again, wanted = len(work.asked()) - before.asked, len(expected.asked()) - done
    tally.check(again == wanted, f"asked {again} again, expected {wanted}", loses=True)
    tally.check(work.scores() == expected.scores(), "other scores than an undisturbed run's")
    check_nobody_left(work, tally)
