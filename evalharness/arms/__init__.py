"""The arms file: read, check, expand to arms, digest. See formats/arms.schema.json.

load_arms_file(path)  -> ArmsFile (arms without digests)
with_digests(file)    -> (ArmsFile with digests, facts per arm); refuses arms that are equal
launch_order(...)     -> the launches in the seed's order
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from evalharness.arms.digest import with_digests
from evalharness.arms.expand import arm_name, build_arm, combinations, launch_order
from evalharness.arms.model import ArmFacts, ArmsFile, PlannedLaunch
from evalharness.arms.schema_check import check_schema
from evalharness.arms.semantics import check_semantics
from evalharness.arms.yaml_read import Document
from evalharness.errors import ArmsError

__all__ = [
    "ArmFacts",
    "ArmsFile",
    "PlannedLaunch",
    "arm_name",
    "launch_order",
    "load_arms_file",
    "parse_arms",
    "with_digests",
]
MAX_BYTES = 1 << 20
DEFAULT_READY_TIMEOUT_S = 600.0


def load_arms_file(path: Path) -> ArmsFile:
    """Read and check an arms file. Raises ArmsError with the lines that are wrong."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ArmsError(f"{path}: {error.strerror}; expected an arms file (YAML)") from error
    return parse_arms(raw, path.name)


def parse_arms(raw: bytes, name: str) -> ArmsFile:
    """Check the bytes of an arms file and expand its arms; digests are still empty."""
    if len(raw) > MAX_BYTES:
        raise ArmsError(f"{name}: {len(raw)} bytes, at most {MAX_BYTES}")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArmsError(f"{name}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    document = Document(text, name)
    check_schema(document)
    check_semantics(document)
    data = document.data
    return ArmsFile(
        name=name,
        sha256=hashlib.sha256(raw).hexdigest(),
        levels={factor: tuple(levels) for factor, levels in data["factors"].items()},
        control={factor: data["control"][factor] for factor in data["factors"]},
        arms=tuple(build_arm(document, levels) for levels in combinations(document)),
        aa=data.get("aa", True),
        order=data.get("order", "randomized"),
        plan=data.get("plan"),
        ready_timeout_s=float(
            data.get("server", {}).get("ready_timeout_s", DEFAULT_READY_TIMEOUT_S)
        ),
        settings=data["factors"],
    )
