"""A small factorial over fake servers, run as a real process: what the fault tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fake_server import fake_python

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 180.0


@dataclass
class FakeFactorial:
    """One run directory with its arms file and manifest, and the log of what was asked."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    on: str = "args: [--dtype, bfloat16]"
    cases: int = 3
    concurrency: str = "1,4"
    aa: bool = True
    manifest_name: str = "smoke"

    def __post_init__(self) -> None:
        model = self.folder / "model"
        model.mkdir(parents=True, exist_ok=True)
        (model / "config.json").write_text("{}")
        self.write_arms()
        manifest = json.loads((ROOT / f"manifests/{self.manifest_name}.json").read_text())
        manifest["suites"] = {name: manifest["suites"][name] for name in ("schema", "gsm8k")}
        for entry in manifest["suites"].values():
            entry["cases"] = entry["cases"][: self.cases]
        self.manifest = self.folder / "manifest.json"
        self.manifest.write_text(json.dumps(manifest))

    @property
    def run(self) -> Path:
        """RUN."""
        return self.folder / "run"

    @property
    def asked_log(self) -> Path:
        """One line per completion request that reached any server."""
        return self.folder / "asked.log"

    def write_arms(self) -> None:
        """Write the arms file anew from the fields."""
        env = {"FAKE_ASKED_LOG": str(self.asked_log), **self.env}
        self.arms = self.folder / "arms.yaml"
        self.arms.write_text(
            f"model: {{path: {self.folder / 'model'}, served_name: fake}}\n"
            f"server: {{python: {fake_python(self.folder)}, ready_timeout_s: 60, "
            f"env: {json.dumps(env)}}}\n"
            f"factors:\n  kernel: {{off: {{args: [--dtype, float32]}}, on: {{{self.on}}}}}\n"
            f"control: {{kernel: off}}\naa: {'true' if self.aa else 'false'}\n"
            "plan: {alpha: 0.025, margins: {schema: 0.1, gsm8k: 0.1}, "
            f"gate_concurrency: [{self.concurrency}]}}\n"
        )

    def command(self, *more: str) -> list[str]:
        """The factorial's command line."""
        return [
            *(sys.executable, "-m", "evalharness", "factorial"),
            *("--arms", str(self.arms), "--manifest", str(self.manifest)),
            *("--concurrency", self.concurrency, "--out", str(self.run), *more),
        ]

    def start(self, *more: str) -> subprocess.Popen[str]:
        """Start it without waiting."""
        return subprocess.Popen(
            self.command(*more),
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, *more: str) -> tuple[int, str]:
        """Run it to its end; returns (exit code, output)."""
        process = self.start(*more)
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
        return process.returncode, output

    def asked(self) -> list[str]:
        """Digests of the requests that reached a server, in order."""
        if not self.asked_log.exists():
            return []
        return [line.split()[-1] for line in self.asked_log.read_text().splitlines()]

    def records(self) -> list[dict[str, Any]]:
        """Every cell record of the run."""
        paths = sorted(self.run.glob("responses/*/*/*.cell.json"))
        return [json.loads(path.read_text()) for path in paths]

    def scores(self) -> Mapping[str, list[tuple[str, str, str]]]:
        """Outcomes by scorer, arm and cell: what two runs of one plan must share."""
        found: dict[str, list[tuple[str, str, str]]] = {}
        for path in sorted(self.run.glob("scores/*/*/*/*.jsonl")):
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            name = f"{path.parts[-4]}/{path.parts[-3]}/{path.name}"
            found[name] = [(row["case_id"], row["outcome"], row["reason"]) for row in rows]
        return found


def processes_of(run: Path) -> list[int]:
    """Ids of living processes that were started for this run."""
    wanted = f"EVALHARNESS_RUN={run.resolve()}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_until(condition: Callable[[], Any], *, timeout_s: float = 60.0) -> None:
    """Wait until the condition holds; fail after the timeout."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.02)
