#!/usr/bin/env python3
"""Start every arm of arms files once, ask each for one token, and say which came up.

  python tools/check_arms_start.py manifests/arms/flag-dtype.yaml ... [--out started.md]

The answer depends on the build, the device and the model: it is a check to run, not a fact to
keep. Arms with equal arguments and environment are started once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

STOP_S = 30.0


def arms_of(file: Path) -> list[dict[str, Any]]:
    """The arms as `evalharness arms --json` prints them."""
    argv = [sys.executable, "-m", "evalharness", "arms", str(file), "--dry-run", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    arms: list[dict[str, Any]] = json.loads(done.stdout)["arms"]
    return arms


def started(arm: dict[str, Any], *, log: Path, timeout_s: float) -> tuple[bool, str]:
    """Serve the arm; return whether a token came back, and the seconds or the log's last error."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    argv = [arm["python"] or sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    argv += ["--model", arm["model_path"], "--served-model-name", arm["served_name"]]
    argv += ["--host", "127.0.0.1", "--port", str(port), *arm["argv"]]
    env = {**os.environ, "VLLM_NO_USAGE_STATS": "1", **dict(arm["env"])}
    began = time.monotonic()
    with log.open("wb") as stream:
        process = subprocess.Popen(
            argv, env=env, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        if _ready(process, port, began + timeout_s):
            _one_token(port, arm["served_name"])
            return True, f"{time.monotonic() - began:.0f} s to the first token"
    except (urllib.error.URLError, TimeoutError, KeyError) as error:
        return False, str(error)
    finally:
        _stop(process)
    return False, _last_error(log)


def _ready(process: subprocess.Popen[bytes], port: int, deadline: float) -> bool:
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    return False


def _one_token(port: int, name: str) -> None:
    body = {"model": name, "prompt": "One and one is", "max_tokens": 1}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        json.load(answer)["choices"][0]["text"]


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_error(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if " ERROR " in line or line.startswith(("E", "R", "V"))]
    said = [line for line in errors if "Error" in line and "Engine core" not in line]
    return said[-1].strip()[-300:] if said else "no token within the time, no error in the log"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, help="append Markdown table rows here")
    parser.add_argument("--log", type=Path, default=Path("check-arms.log"))
    parser.add_argument("--timeout-s", type=float, default=300.0)
    args = parser.parse_args()
    failed = 0
    for file in args.files:
        for arm in arms_of(file):
            came, text = started(arm, log=args.log, timeout_s=args.timeout_s)
            failed += not came
            row = f"| {file.name} | {arm['name']} | {'yes' if came else 'no'} | {text} |"
            print(row, flush=True)
            if args.out is not None:
                with args.out.open("a", encoding="utf-8") as out:
                    out.write(row + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
