"""A factorial of four arms, small enough for a test, to be run here or on a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evalharness.types import sha256_hex
from tests.e2e.fake_run import FakeFactorial
from tests.fake_server import fake_python

SHARDS = 3


class WideFactorial(FakeFactorial):
    """2x2 arms without A/A over eight cases a suite, dealt out to three shards."""

    def __init__(self, folder: Path, *, delay_s: float = 0.05) -> None:
        super().__init__(
            folder,
            env={"FAKE_DELAY_S": str(delay_s)},
            cases=8,
            concurrency="1,2",
            aa=False,
            manifest_name="demo",
        )

    def write_arms(self) -> None:
        """Write the arms file: two factors of two levels."""
        env = json.dumps({"FAKE_ASKED_LOG": str(self.asked_log), **self.env})
        self.arms = self.folder / "arms.yaml"
        self.arms.write_text(
            f"model: {{path: {self.folder / 'model'}, served_name: fake}}\n"
            f"server: {{python: {fake_python(self.folder)}, ready_timeout_s: 60, env: {env}}}\n"
            "factors:\n"
            "  kernel: {off: {args: [--dtype, float32]}, on: {args: [--dtype, bfloat16]}}\n"
            "  cache: {on: {args: [--enable-prefix-caching]}, "
            "off: {args: [--no-enable-prefix-caching]}}\n"
            "control: {kernel: off, cache: on}\naa: false\n"
            "plan: {alpha: 0.025, margins: {schema: 0.1, gsm8k: 0.1}, "
            f"gate_concurrency: [{self.concurrency}]}}\n"
        )

    def command(self, *more: str) -> list[str]:
        """The command with its shards."""
        return super().command("--shards", str(SHARDS), *more)

    @property
    def mark(self) -> str:
        """The beginning of the run mark of its processes on nodes."""
        return f"EVALHARNESS_RUN={sha256_hex(str(self.run.resolve()))[:16]}#"

    @property
    def cells(self) -> int:
        """Cells of one arm, a cell's shards counting as one."""
        suites = json.loads(self.manifest.read_text())["suites"].values()
        return sum(len(suite["modes"]) for suite in suites) * len(self.concurrency.split(","))

    def plan(self) -> dict[str, Any]:
        """plan.json without what differs between two runs of one command by nature."""
        plan: dict[str, Any] = json.loads((self.run / "plan.json").read_text())
        plan.pop("created_utc")
        return plan

    def servers(self) -> list[dict[str, Any]]:
        """Every server.json of the run."""
        paths = sorted(self.run.glob("arms/*/*/server.json"))
        return [json.loads(path.read_text()) for path in paths]

    def verdicts(self) -> dict[tuple[str, str, str], tuple[str, str]]:
        """(outcome, reason) by scorer and arm, cell and case: whichever launch it was."""
        found = {}
        for path in sorted(self.run.glob("scores/*/*/*/*.jsonl")):
            for row in map(json.loads, path.read_text().splitlines()):
                place = (f"{path.parts[-4]} {path.parts[-3]}", path.name, row["case_id"])
                assert place not in found, f"{place} is scored in two launches"
                found[place] = (row["outcome"], row["reason"])
        return found

    def bodies(self) -> dict[tuple[str, str, str], str]:
        """Raw bodies of complete cells by arm, cell and case: the servers' own words."""
        found = {}
        for record in sorted(self.run.glob("responses/*/*/*.cell.json")):
            if json.loads(record.read_text())["state"] == "complete":
                path = record.with_name(record.name.replace(".cell.json", ".jsonl"))
                for row in map(json.loads, path.read_text().splitlines()):
                    found[record.parts[-3], path.name, row["case_id"]] = row["body"]
        return found

    def living(self) -> list[int]:
        """Ids of the processes of this run on any node."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if state != "Z" and self.mark.encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found
