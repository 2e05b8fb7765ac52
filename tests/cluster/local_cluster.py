"""A Ray cluster of several nodes on this machine, whose nodes can be killed like machines."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

# Small and quiet, and quick to notice a death. Set before Ray is imported, for its children too.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "4",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "OMP_NUM_THREADS": "1",
}
STORE_BYTES = 80 << 20
NAMES = ("node-a", "node-b", "node-c")


class LocalCluster:
    """Nodes node-a (the head, where drivers attach), node-b and node-c; one CPU each."""

    def __init__(self, env: dict[str, dict[str, str]] | None = None) -> None:
        # A short path: sockets have at most 107 bytes. Drivers find the same one.
        self.folder = Path(tempfile.mkdtemp(prefix="eh-", dir="/tmp"))
        (self.folder / "ray").mkdir()
        self._before = dict(os.environ)
        os.environ.update(SETTINGS, RAY_TMPDIR=str(self.folder))
        from ray.cluster_utils import Cluster

        self._env = env or {}
        self._cluster = Cluster()
        self._nodes: dict[str, Any] = {}
        try:
            for name in NAMES:
                self.add(name)
        except BaseException:
            self.close()
            raise

    def add(self, name: str, *, cpus: int = 1, gpus: int = 0) -> None:
        """Add a node; its GPUs are Ray's word only."""
        head = {"include_dashboard": False}
        with _environment(self._env.get(name, {})):
            self._nodes[name] = self._cluster.add_node(
                num_cpus=cpus,
                num_gpus=gpus,
                object_store_memory=STORE_BYTES,
                node_name=name,
                **({} if self._nodes else head),
            )

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process of every node and remove their files."""
        left = [pid for name in self._nodes for pid in self.processes(name)]
        self._cluster.shutdown()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in set(os.environ) - set(self._before):
            del os.environ[name]
        os.environ.update(self._before)

    @property
    def address(self) -> str:
        """HOST:PORT of the cluster."""
        return str(self._cluster.address)

    def raylet(self, name: str) -> int:
        """Return the process id of a node's raylet."""
        return int(self._nodes[name].all_processes["raylet"][0].process.pid)

    def processes(self, name: str) -> list[int]:
        """Return the raylet of a node and everything below it: workers, wardens, servers."""
        return descendants(self.raylet(name))

    def node_of(self, pid: int) -> str | None:
        """Return the node below whose raylet a process runs."""
        parents = process_parents()
        above = {self.raylet(name): name for name in self._nodes}
        while pid:
            if pid in above:
                return above[pid]
            pid = parents.get(pid, 0)
        return None

    def kill(self, name: str) -> list[int]:
        """SIGKILL all of a node's processes at once, as a power cut would; returns their ids."""
        lost = self.processes(name)
        for pid in lost:
            os.kill(pid, signal.SIGSTOP)  # nobody gets to tidy up while the others die
        for pid in lost:
            os.kill(pid, signal.SIGKILL)
        return lost


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Any:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def process_parents() -> dict[int, int]:
    """Return process id -> parent's id of all processes."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    return parents


def descendants(root: int) -> list[int]:
    """Return a process and all below it."""
    parents = process_parents()
    below, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        below |= more
        grown = bool(more)
    return sorted(below)


def is_running(pid: int) -> bool:
    """Is there such a process, and not only its entry that nobody has collected?"""
    try:
        return (Path(f"/proc/{pid}") / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
