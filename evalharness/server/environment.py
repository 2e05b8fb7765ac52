"""A server's environment, explicit: what is passed through and what the harness sets."""

from __future__ import annotations

import os
from pathlib import Path

from evalharness.types import Arm

PASSED_THROUGH = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "SSL_CERT_FILE",
    "XDG_CACHE_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME",
    "CUDA_PATH",
    "NVIDIA_VISIBLE_DEVICES",
)


def server_environment(
    arm: Arm, *, api_key: str, caches: Path, route_hits: Path, run_mark: str
) -> dict[str, str]:
    """Return the whole environment of an arm's server.

    Compile caches are keyed by the arm's digest, so no arm can load another's code. The arm's own
    settings win, except over the key and the places that the harness must know.
    """
    env = {name: os.environ[name] for name in PASSED_THROUGH if name in os.environ}
    root = caches / arm.digest[:16]
    env.update(
        VLLM_NO_USAGE_STATS="1",
        DO_NOT_TRACK="1",
        VLLM_CACHE_ROOT=str(root / "vllm"),
        TRITON_CACHE_DIR=str(root / "triton"),
        TORCHINDUCTOR_CACHE_DIR=str(root / "inductor"),
    )
    env.update(dict(arm.env))
    env.setdefault("VLLM_PLUGINS", "")
    # CUDA's own default is the fastest card first; an index must mean the card that was waited for.
    env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    # By default the server closes a connection 5 s after its last reply. Its event loop looks
    # at that timer before it looks at the socket, so after a stall (a busy host, a long prompt)
    # it closes connections whose next request has already arrived: requests lost to no kernel.
    env.setdefault("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "3600")
    env.update(
        VLLM_API_KEY=api_key,
        VLLM_SERVER_DEV_MODE="1",
        EVALHARNESS_ROUTE_HITS_DIR=str(route_hits),
        EVALHARNESS_RUN=run_mark,
    )
    return env


def default_caches() -> Path:
    """Return the folder under which compile caches live, one per arm digest."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "evalharness" / "compile"
