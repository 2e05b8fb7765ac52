"""Small traces by hand, in the words of torch's profiler."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DECODE = "execute_context_0(0)_generation_16(16)"


def kernel(
    name: str,
    ts: float,
    dur: float,
    *,
    stream: int = 7,
    device: int = 0,
    correlation: int = 0,
    cat: str = "kernel",
) -> dict[str, Any]:
    """One activity of a card; times in microseconds."""
    args = {"device": device, "stream": stream, "correlation": correlation}
    head = {"ph": "X", "cat": cat, "name": name, "pid": device, "tid": stream}
    return {**head, "ts": ts, "dur": dur, "args": args}


def operator(name: str, ts: float, dur: float, *, thread: int = 1) -> dict[str, Any]:
    """One operator of a CPU thread."""
    head = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 99, "tid": thread}
    return {**head, "ts": ts, "dur": dur, "args": {"External id": 1}}


def graph_launch(correlation: int, ts: float = 0.0) -> dict[str, Any]:
    """A CUDA graph's launch on the host."""
    head = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 99, "tid": 1}
    return {**head, "ts": ts, "dur": 1.0, "args": {"correlation": correlation}}


def step(name: str = DECODE, ts: float = 0.0, *, cat: str = "user_annotation") -> dict[str, Any]:
    """An annotated step."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 99, "tid": 1, "ts": ts, "dur": 30.0}


def write(path: Path, events: Sequence[Any], **document: Any) -> Path:
    """Write a trace; gzip where the name says so."""
    raw = json.dumps({"schemaVersion": 1, "traceEvents": list(events), **document}).encode()
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
    return path


def decode_step() -> list[dict[str, Any]]:
    """One step whose sums are worked out by hand, in microseconds.

    stream 7: gemm 0-10, ks_gdn_split 8-12 (a dependent launch: 2 of overlap), strange 20-25
    stream 8: copy 11-15 (1 of overlap), memset 25-26; the gemm was launched by a graph
    kernels 10+4+5+4+1 = 24, busy 15+6 = 21, overlap 3, envelope 26, one gap of 5 (15 to 20)
    """
    return [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        step(),
        graph_launch(5),
        kernel("sm90_xmma_gemm_f16f16_f16f32", 0, 10, correlation=5),
        kernel("ks_gdn_split", 8, 4, correlation=6),
        kernel("Memcpy DtoH (Device -> Pinned)", 11, 4, stream=8, cat="gpu_memcpy"),
        kernel("a_kernel_nobody_knows<4>", 20, 5),
        kernel("Memset (Device)", 25, 1, stream=8, cat="gpu_memset"),
    ]
