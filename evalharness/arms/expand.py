"""Checked document -> arms: every combination of levels, named, in a fixed order."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalharness.arms.model import PlannedLaunch
from evalharness.arms.yaml_read import Document
from evalharness.errors import ArmsError
from evalharness.types import AA, CONTROL, Arm, canonical_json, sha256_hex

MAX_ARMS = 256


def arm_name(
    levels: Mapping[str, str], control: Mapping[str, str], factors: Mapping[str, Sequence[str]]
) -> str:
    """Return the arm's name: the factors that differ from the control, joined with `+`.

    A factor with more than two levels appears as `factor=level`.
    """
    parts = [
        factor if len(factors[factor]) == 2 else f"{factor}={levels[factor]}"
        for factor in factors
        if levels[factor] != control[factor]
    ]
    return "+".join(parts) or CONTROL


def combinations(document: Document) -> list[dict[str, str]]:
    """Return every arm's levels, the control first, then the file's order; no repeats."""
    data = document.data
    factors: dict[str, dict[str, Any]] = data["factors"]
    control = {factor: data["control"][factor] for factor in factors}
    listed = data.get("arms", "full")
    if listed == "full":
        count = 1
        for levels in factors.values():
            count *= len(levels)
        if count > MAX_ARMS:
            raise ArmsError(
                f"{document.where(('factors',))}: {count} arms in the full factorial, at most "
                f"{MAX_ARMS}; list the wanted combinations under arms"
            )
        chosen = [
            dict(zip(factors, levels, strict=True))
            for levels in itertools.product(*factors.values())
        ]
    else:
        chosen = [{**control, **levels} for levels in listed]
    unique = {tuple(levels.items()): levels for levels in (control, *chosen)}
    return list(unique.values())


def build_arm(document: Document, levels: Mapping[str, str]) -> Arm:
    """Return the arm of one combination, without its digest.

    Arguments: the server's, then each level's in factor order. A level's environment may
    override the server's; two factors may not set the same variable.
    """
    data = document.data
    server = data.get("server", {})
    chosen = [data["factors"][factor][level] for factor, level in levels.items()]
    env = {"VLLM_PLUGINS": "", **server.get("env", {})}
    for setting in chosen:
        env.update(setting.get("env", {}))
    argv = [
        *server.get("args", []),
        *(arg for setting in chosen for arg in setting.get("args", [])),
    ]
    model = _last(chosen, "model", data.get("model"))
    endpoint = _last(chosen, "endpoint", data.get("endpoint"))
    base_name = (data.get("model") or {}).get("served_name")
    served = (endpoint or {}).get("served_name") or (model or {}).get("served_name") or base_name
    path = os.path.expanduser(model["path"]) if model else None  # noqa: PTH111 - kept as written
    return Arm(
        name=arm_name(levels, data["control"], {f: list(v) for f, v in data["factors"].items()}),
        levels=tuple(levels.items()),
        argv=() if endpoint else tuple(argv),
        env=() if endpoint else tuple(sorted(env.items())),
        model_path=None if endpoint else path,
        served_name=served or (Path(path).name if path and not endpoint else ""),
        python=None if endpoint else _last(chosen, "python", server.get("python")),
        endpoint=endpoint["base_url"].rstrip("/") if endpoint else None,
        api_key_env=endpoint.get("api_key_env") if endpoint else None,
        digest="",
    )


def _last(chosen: Sequence[Mapping[str, Any]], key: str, default: Any) -> Any:
    return next((setting[key] for setting in reversed(chosen) if key in setting), default)


def launch_order(
    names: Sequence[str],
    *,
    aa: bool,
    order: str,
    seed: int,
    replays: int,
    shards: int = 1,
    speed_repeats: int = 0,
) -> tuple[PlannedLaunch, ...]:
    """Return the launches in the order the seed gives.

    randomized: one launch per arm (and the A/A launch), in random order, with all its replays.
    blocked: one launch per arm and replay; each block of replays holds every arm once, in a
    random order of its own, so that drift over hours hits all arms alike.
    alternating: blocked, and every second block runs the one before it backwards, so that a
    steady drift cancels over the two.
    shards: each block once per shard of the case lists, in an order of its own.
    speed_repeats: blocks in all; those beyond the replays are for speed suites only.
    """
    arms = [*names, *([AA] if aa else [])]
    blocks: list[tuple[int, ...]] = [tuple(range(replays))]
    if order != "randomized":
        blocks = [(replicate,) for replicate in range(max(replays, speed_repeats))]
    launches: list[PlannedLaunch] = []
    for block, shard in itertools.product(blocks, range(1, shards + 1)):
        speed_only = block[0] >= replays
        if speed_only and shard > 1:
            continue  # a speed suite is never dealt out
        backwards = order == "alternating" and block[0] % 2 == 1
        drawn = [block[0] - 1] if backwards else list(block)
        words = {"order": sorted(arms), "replicates": drawn, "seed": seed}
        text = canonical_json(words if shards == 1 else {**words, "shard": [shard, shards]})
        shuffled = sorted(arms)
        random.Random(int(sha256_hex(text), 16)).shuffle(shuffled)
        if backwards:
            shuffled.reverse()
        launches.extend(PlannedLaunch(arm, block, shard, speed_only) for arm in shuffled)
    return tuple(launches)
