"""Real vLLM servers for the tests: started once per distinct launch, shared, always stopped."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

READY_TIMEOUT_S = 420.0
STOP_TIMEOUT_S = 30.0
# Two models of 135M with 2 GiB of cache each; more would not fit beside a test run.
MOST_ALIVE = 2
SERVED = "demo"
PR_SET_PDEATHSIG = 1
# Where a server writes a profile it is asked for. Of this process, so that runs do not mix.
TRACES = Path(tempfile.gettempdir()) / f"evalharness-traces-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class LaunchKey:
    """What tells one launch from another."""

    model: Path
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answers."""

    base_url: str
    api_key: str
    model: str
    log: Path
    pid: int

    def get(self, path: str) -> str:
        """GET a path and return the body's text."""
        return _get(self.base_url + path, self.api_key)

    def metrics(self) -> dict[str, float]:
        """Return /metrics as {name with labels: value}."""
        lines = [line for line in self.get("/metrics").splitlines() if line and line[0] != "#"]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def metric(self, name: str) -> float:
        """Return the sum of one metric over its label sets; KeyError if it is not there."""
        found = [v for k, v in self.metrics().items() if k.partition("{")[0] == name]
        if not found:
            raise KeyError(name)
        return sum(found)


class Servers:
    """Starts servers on demand and keeps the last few alive."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._alive: OrderedDict[LaunchKey, tuple[subprocess.Popen[bytes], RunningServer]] = (
            OrderedDict()
        )
        self.launches = 0

    def get(self, key: LaunchKey) -> RunningServer:
        """Return the server of a launch, started now if it is not running."""
        if key in self._alive:
            self._alive.move_to_end(key)
            return self._alive[key][1]
        while len(self._alive) >= MOST_ALIVE:
            _, (process, _server) = self._alive.popitem(last=False)
            stop(process)
        self._alive[key] = self._start(key)
        return self._alive[key][1]

    def close(self) -> None:
        """Stop all."""
        while self._alive:
            stop(self._alive.popitem()[1][0])

    def _start(self, key: LaunchKey) -> tuple[subprocess.Popen[bytes], RunningServer]:
        self.launches += 1
        log = self._folder / f"server-{self.launches:02d}.log"
        port, api_key = free_port(), secrets.token_hex(16)
        with log.open("wb") as out:
            process = subprocess.Popen(
                argv(key, port),
                env=environment(key, api_key),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        server = RunningServer(f"http://127.0.0.1:{port}", api_key, SERVED, log, process.pid)
        try:
            _until_ready(process, server)
        except BaseException:
            stop(process)
            raise
        return process, server


def argv(key: LaunchKey, port: int) -> list[str]:
    """Return the server's command line."""
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(key.model), "--served-model-name", SERVED]
    command += ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    command += ["--max-model-len", "2048", "--max-num-seqs", "16"]
    return [*command, *key.args]


def environment(key: LaunchKey, api_key: str) -> dict[str, str]:
    """Return the server's whole environment; nothing else is passed on."""
    root = str(Path(__file__).resolve().parents[2])
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ
    }
    return kept | {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "2",
        # Waiting threads sleep: spinning ones starve the server's own other processes, and on a
        # busy machine of two cores a step then takes many times as long.
        "OMP_WAIT_POLICY": "passive",
        "PYTHONPATH": root,
        "VLLM_API_KEY": api_key,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # As evalharness.server sets it: a stalled server must not close connections in use.
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "3600",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "",
        "VLLM_SERVER_DEV_MODE": "1",
        **dict(key.env),
    }


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server and everything of its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _die_with_parent() -> None:
    # A killed test run must leave no server behind.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _until_ready(process: subprocess.Popen[bytes], server: RunningServer) -> None:
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode}:\n{_tail(server)}")
        try:
            server.get("/v1/models")
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError(f"the server was not ready in {READY_TIMEOUT_S:.0f} s:\n{_tail(server)}")


def _tail(server: RunningServer) -> str:
    return "\n".join(server.log.read_text("utf-8", "replace").splitlines()[-25:])


def _get(url: str, api_key: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {api_key}"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        text: str = reply.read().decode("utf-8")
    return text
