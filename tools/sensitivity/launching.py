"""Arms files of the sensitivity runs, and the commands that run and judge them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SERVED = "demo"
# Half again as fast as float32 with AVX-512, and no noisier between equal launches here.
DTYPE_HELP = "(bfloat16); float32 on CPUs without AVX-512, where bfloat16 is emulated"
HARMLESS, BAD = "prefix", "weights"
EXPECTED = {HARMLESS: "admitted", BAD: "harm shown"}
# `noninferiority`: every arm admitted, undecided, harm shown. Anything else is no verdict.
JUDGED = (0, 10, 11)


class RunFailed(Exception):
    """A run or its judgement ended without a result."""


@dataclass(frozen=True, slots=True)
class Serving:
    """How every server of a sensitivity run is started."""

    model: Path
    dtype: str
    most_running: int = 16

    def document(
        self, factors: Mapping[str, Any], control: Mapping[str, str], **more: Any
    ) -> dict[str, Any]:
        """Return an arms file's document."""
        args = ["--max-model-len", "2048", "--max-num-seqs", str(self.most_running)]
        args += ["--enforce-eager", "--dtype", self.dtype, "--enable-auto-tool-choice"]
        args += ["--tool-call-parser", "hermes"]
        args += ["--logits-processors", "evalharness.nll.processor:ForcedTokens"]
        env = {
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # A second thread beside the engine's waiting loop slows two cores down.
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        return {
            "model": _model(self.model),
            "server": {"engine": "vllm", "args": args, "env": env, "ready_timeout_s": 600},
            "factors": dict(factors),
            "control": dict(control),
            **more,
        }


def _model(path: Path) -> dict[str, str]:
    return {"path": str(path), "served_name": SERVED}


def weights_factor(good: Path, others: Mapping[str, Path]) -> dict[str, Any]:
    """Return the factor whose levels are model directories; `good` is the control's."""
    named = {"good": good, **others}
    return {level: {"model": _model(path)} for level, path in named.items()}


def prefix_factor() -> dict[str, Any]:
    """Return the factor that harms nothing: reuse of a common prefix's cache."""
    return {
        "off": {"args": ["--no-enable-prefix-caching"]},
        "on": {"args": ["--enable-prefix-caching"]},
    }


def plan_block(
    margins: Mapping[str, object], *, alpha: float, gate: Sequence[int]
) -> dict[str, Any]:
    """Return the plan that is frozen before the first request."""
    return {
        "alpha": alpha,
        "margins": dict(margins),
        "gate_concurrency": list(gate),
        "sequence": "holm",
        "replays": 1,
    }


def run(
    folder: Path,
    *,
    arms: Mapping[str, Any],
    manifest: Path,
    concurrency: Sequence[int],
    seed: int,
) -> dict[str, Any]:
    """Run (or continue) a factorial under `folder`/run, judge it, and return the report.

    Raises RunFailed where either command ends without a result.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "arms.yaml"
    file.write_text(json.dumps(arms, indent=1) + "\n", encoding="utf-8")  # JSON is YAML
    out = folder / "run"
    levels = ",".join(str(level) for level in concurrency)
    _call(
        [
            *("factorial", "--arms", str(file), "--manifest", str(manifest)),
            *("--concurrency", levels, "--seed", str(seed), "--out", str(out)),
        ],
        fine=(0,),
    )
    _call(["noninferiority", str(out)], fine=JUDGED)
    report: dict[str, Any] = json.loads((out / "report" / "report.json").read_text("utf-8"))
    return report


def _call(arguments: Sequence[str], *, fine: Sequence[int]) -> None:
    command = [sys.executable, "-m", "evalharness", *arguments]
    print(f"$ evalharness {' '.join(arguments)}", flush=True)
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code not in fine:
        raise RunFailed(f"evalharness {' '.join(arguments)}: exit code {code}, expected {fine}")


def spent_s(folder: Path) -> float:
    """Return the seconds that the run under `folder` took: its servers' starts and its cells.

    Read from the records, so that a run that was continued counts whole.
    """
    total = 0.0
    for path in (folder / "run" / "arms").glob("*/*/server.json"):
        total += json.loads(path.read_text(encoding="utf-8"))["ready_s"] or 0.0
    for path in (folder / "run" / "responses").glob("*/*/*.cell.json"):
        total += json.loads(path.read_text(encoding="utf-8"))["wall_s"]
    return total
